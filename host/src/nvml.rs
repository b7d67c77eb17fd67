//! The state of a GPU while it works: clocks, power, temperature, and what holds
//! its clocks down, from NVIDIA's management library (NVML).
//!
//! Nothing is ever set. A machine without the library, or whose library does not
//! know the device, is no error: figures then come without these columns.

use crate::device::DeviceInfo;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use std::ffi::OsStr;

/// The name that drivers install; the one without a number comes with toolkits.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Reads the state of one device.
pub struct Monitor {
    nvml: Nvml,
    uuid: String,
}

/// A device's state at one moment. What it does not tell is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// Power drawn, in milliwatts.
    pub milliwatts: Option<u32>,
    /// Temperature, in degrees Celsius.
    pub celsius: Option<u32>,
    /// What holds the clocks below what the device would take by itself.
    pub throttling: Vec<&'static str>,
}

impl Monitor {
    /// Opens the library for a device.
    ///
    /// # Errors
    ///
    /// Says in words why there is none to use.
    pub fn open(device: &DeviceInfo) -> Result<Self, String> {
        let nvml = Nvml::builder()
            .lib_path(OsStr::new(LIBRARY))
            .init()
            .map_err(|error| format!("{LIBRARY}: {}", words(&error)))?;
        nvml.device_by_uuid(device.uuid.as_str())
            .map_err(|error| format!("{LIBRARY} and {}: {}", device.uuid, words(&error)))?;
        Ok(Self {
            nvml,
            uuid: device.uuid.clone(),
        })
    }

    /// The driver's version, such as `580.95.05`.
    pub fn driver(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// The power that the device may draw, in milliwatts.
    pub fn power_limit(&self) -> Option<u32> {
        let device = self.nvml.device_by_uuid(self.uuid.as_str()).ok()?;
        device.enforced_power_limit().ok()
    }

    /// The state now.
    pub fn read(&self) -> State {
        let Ok(device) = self.nvml.device_by_uuid(self.uuid.as_str()) else {
            return State::default();
        };
        State {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            milliwatts: device.power_usage().ok(),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttling: device
                .current_throttle_reasons()
                .map_or_else(|_| Vec::new(), throttling),
        }
    }
}

fn words(error: &nvml_wrapper::error::NvmlError) -> String {
    // A library that does not open says why in its source.
    std::error::Error::source(error).map_or_else(
        || error.to_string(),
        |source| {
            let inner = std::error::Error::source(source);
            inner.map_or_else(|| source.to_string(), ToString::to_string)
        },
    )
}

/// The reasons that make a figure lower than the device's own. Being idle or at
/// clocks that someone set on purpose is no fault, and shows in the clock.
fn throttling(reasons: ThrottleReasons) -> Vec<&'static str> {
    const NAMES: [(ThrottleReasons, &str); 6] = [
        (ThrottleReasons::SW_POWER_CAP, "power cap"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware thermal"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync boost"),
    ];
    NAMES
        .into_iter()
        .filter(|(reason, _)| reasons.contains(*reason))
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_slows_it_down_counts() {
        let idle = ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING;
        assert_eq!(throttling(idle), [""; 0]);
        let capped = idle | ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(throttling(capped), ["power cap", "hardware thermal"]);
    }
}
