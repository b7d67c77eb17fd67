/* Stands in for libnvidia-ml.so.1.

     FAKE_NVML_UUID      the device that it knows; the fake driver's first unless set
     FAKE_NVML_THROTTLE  the clocks' event reasons, as a bit set */
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code ? "an error" : "no error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    strncpy(version, "999.88.77", length);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    const char *known = getenv("FAKE_NVML_UUID");
    *device = &nvmlInit_v2;
    return strcmp(uuid, known ? known : "GPU-abababab-abab-abab-abab-ababababab00") ? 6 : 0;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    (void)device;
    *mhz = type == 1 ? 1755 : 2619;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = 654321;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = 700000;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device, (void)sensor;
    *celsius = 61;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    const char *set = getenv("FAKE_NVML_THROTTLE");
    (void)device;
    *reasons = set ? strtoull(set, NULL, 0) : 1;
    return 0;
}
