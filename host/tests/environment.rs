//! What the program says on machines of every kind: without a driver, with one
//! that is broken, old or lacks a device, with kernels that fail.
//!
//! A library of a few lines of C takes the driver's place, found through
//! `LD_LIBRARY_PATH`; `environment/fake_driver.c` says how it is set up.

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use assert_cmd::cargo::cargo_bin_cmd;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder of this run's own. A test's thread may run beside others.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("environment_{}_{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles the fake driver into a folder and returns the folder, or nothing
/// where there is no `cc`.
fn compile(name: &str, arguments: &[&str]) -> Option<PathBuf> {
    let folder = fresh_folder(name);
    let built = std::process::Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror"])
        .args(["-shared", "-fPIC"])
        .args(arguments)
        .arg("-o")
        .arg(folder.join("libcuda.so.1"))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/environment/fake_driver.c"
        ))
        .output();
    match built {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc: {said}");
            Some(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("cc: {error}"),
    }
}

/// The folder of the complete fake driver. Where it can't be built, one line
/// says so.
fn fake() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = compile("driver", &[]);
            if folder.is_none() {
                // Past the test harness, which hides what a passing test prints.
                let _ = writeln!(
                    io::stderr(),
                    "skipped: the tests with a fake driver, since there is no `cc` to build it with"
                );
            }
            folder
        })
        .as_deref()
}

/// The program, with `folder` before all others in the search for libraries.
fn matmul(folder: &Path, settings: &[(&str, &str)], arguments: &str) -> Command {
    let mut command = cargo_bin_cmd!("matmul");
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("RUST_BACKTRACE", "1")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("MATMUL_SYNC")
        .envs(settings.iter().copied())
        .args(arguments.split_whitespace());
    command
}

/// Runs the program, which must fail with this exit code and one line on
/// stderr that has every one of these parts.
#[track_caller]
fn fails(
    folder: &Path,
    settings: &[(&str, &str)],
    arguments: &str,
    code: i32,
    parts: &[&str],
) -> Assert {
    let assert = matmul(folder, settings, arguments).assert().code(code);
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(
        said.starts_with("error: ") && said.ends_with('\n') && said.lines().count() == 1,
        "not one line: {said}"
    );
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert
}

const SMALL: &str = "run --m 20 --n 30 --k 40";

#[test]
fn no_driver() {
    if Path::new("/usr/lib/wsl/lib/libcuda.so.1").exists() {
        let _ = writeln!(
            io::stderr(),
            "skipped: the test without a driver, since WSL's cannot be hidden from the search"
        );
        return;
    }
    // The linker stops at the first file of the name, so these hide a real one.
    let folder = fresh_folder("no_driver");
    for name in ["libcuda.so.1", "libcuda.so"] {
        fs::write(folder.join(name), "not a library\n").unwrap();
    }
    let assert = fails(
        &folder,
        &[],
        SMALL,
        1,
        &["no CUDA driver", "libcuda.so.1", "Install NVIDIA's driver"],
    );
    assert.stdout("");
    fails(&folder, &[], "verify", 1, &["no CUDA driver"]);
    // What needs no driver works.
    matmul(&folder, &[], "list").assert().success();
    matmul(&folder, &[], "run --kernel cpu --m 20 --n 30 --k 40")
        .assert()
        .success()
        .stderr("");
}

#[test]
fn a_library_that_is_no_driver() {
    let Some(folder) = compile("no_cuinit", &["-DcuInit=other"]) else {
        return;
    };
    fails(
        &folder,
        &[],
        SMALL,
        1,
        &["no CUDA driver", "no function cuInit"],
    );
}

#[test]
fn no_device() {
    let Some(fake) = fake() else { return };
    for settings in [("FAKE_INIT", "100"), ("FAKE_DEVICES", "0")] {
        fails(
            fake,
            &[settings],
            SMALL,
            1,
            &["no CUDA device", "sees none"],
        );
    }
}

#[test]
fn hidden_devices() {
    let Some(fake) = fake() else { return };
    fails(
        fake,
        &[("CUDA_VISIBLE_DEVICES", "")],
        SMALL,
        1,
        &["no CUDA device", "CUDA_VISIBLE_DEVICES is set to ''"],
    );
}

#[test]
fn a_driver_that_does_not_start() {
    let Some(fake) = fake() else { return };
    fails(
        fake,
        &[("FAKE_INIT", "803")],
        SMALL,
        1,
        &[
            "does not start",
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
            "restart after an update",
        ],
    );
    // Codes that neither the bindings nor this driver know.
    for code in ["46", "31337", "-5"] {
        let said = format!("does not start: CUDA error {code}");
        fails(fake, &[("FAKE_INIT", code)], SMALL, 1, &[&said]);
    }
}

#[test]
fn a_device_that_is_not_there() {
    let Some(fake) = fake() else { return };
    let arguments = "run --device 7 --m 20 --n 30 --k 40";
    fails(fake, &[], arguments, 2, &["no device 7", "0 (Fake GPU A)"]);
    fails(
        fake,
        &[("FAKE_DEVICES", "2")],
        arguments,
        2,
        &["0 (Fake GPU A), 1 (Fake GPU B)"],
    );
    fails(fake, &[], "verify --device 4294967295", 2, &["4294967295"]);
}

#[test]
fn a_driver_older_than_the_ptx() {
    let Some(fake) = fake() else { return };
    for (capability, version, parts) in [
        ("90", "11000", ["PTX 8.0", "CUDA 12.0", "CUDA 11.0"]),
        ("75", "10000", ["PTX 7.0", "CUDA 11.0", "CUDA 10.0"]),
    ] {
        let settings = [("FAKE_CC", capability), ("FAKE_VERSION", version)];
        fails(fake, &settings, SMALL, 1, &parts);
        fails(fake, &settings, SMALL, 1, &["update the driver"]);
    }
    // Just new enough.
    for (capability, version) in [("90", "12000"), ("75", "11000")] {
        let settings = [
            ("FAKE_CC", capability),
            ("FAKE_VERSION", version),
            ("FAKE_KERNEL", "right"),
        ];
        matmul(fake, &settings, SMALL).assert().success();
    }
}

#[test]
fn a_device_that_is_too_old() {
    let Some(fake) = fake() else { return };
    fails(
        fake,
        &[("FAKE_CC", "70")],
        SMALL,
        1,
        &["Fake GPU A", "compute capability 7.0", "7.5"],
    );
}

#[test]
fn too_little_device_memory() {
    let Some(fake) = fake() else { return };
    let free = "1000000000";
    // 3·50,000² float32 of A, B and C, 2·50,000² float64 of the reference. The
    // host's own matrices would take as much again, and must not be made.
    let assert = fails(
        fake,
        &[("FAKE_FREE", free)],
        "run --m 50000 --n 50000 --k 50000",
        1,
        &["50000×50000×50000", "70000000000 bytes", free, "free some"],
    );
    assert!(assert.get_output().stdout.starts_with(b"Fake GPU A"));
    // Free by the driver's account, and yet refused.
    fails(
        fake,
        &[("FAKE_ALLOC", "2")],
        SMALL,
        1,
        &["a matrix of 20×40", "3200 bytes", "of device memory"],
    );
}

#[test]
fn kernels_that_do_not_load() {
    let Some(fake) = fake() else { return };
    fails(
        fake,
        &[("FAKE_MODULE", "222")],
        SMALL,
        1,
        &[
            "loading the sm_90a kernels, PTX 8.0, with a driver for CUDA 12.8",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)",
            "update the driver",
        ],
    );
    fails(
        fake,
        &[("FAKE_MODULE", "218")],
        SMALL,
        1,
        &["CUDA_ERROR_INVALID_PTX (218)", "Build the program anew"],
    );
    fails(
        fake,
        &[("FAKE_FUNCTION", "500")],
        SMALL,
        1,
        &["looking up the kernel gemm_tiled_32", "(500)"],
    );
    fails(
        fake,
        &[("FAKE_CONTEXT", "46")],
        SMALL,
        1,
        &["opening Fake GPU A", "CUDA error 46", "Another process"],
    );
}

#[test]
fn kernels_that_fail() {
    let Some(fake) = fake() else { return };
    for (code, name) in [
        ("719", "CUDA_ERROR_LAUNCH_FAILED (719)"),
        ("700", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ("721", "CUDA error 721"),
    ] {
        let parts = [name, "synchronisation: gemm_tiled_32", "MATMUL_SYNC=1"];
        fails(fake, &[("FAKE_SYNC", code)], SMALL, 1, &parts);
        let settings = [("FAKE_SYNC", code), ("MATMUL_SYNC", "1")];
        fails(fake, &settings, SMALL, 1, &[name, "gemm_tiled_32"]);
    }
    fails(
        fake,
        &[("FAKE_LAUNCH", "1")],
        SMALL,
        1,
        &["launching gemm_tiled_32", "CUDA_ERROR_INVALID_VALUE (1)"],
    );
}

#[test]
fn a_driver_that_lacks_a_function() {
    let Some(folder) = compile("without", &["-DWITHOUT_cuCtxSynchronize"]) else {
        return;
    };
    fails(&folder, &[], SMALL, 1, &["CUDA_ERROR_NOT_FOUND (500)"]);
}

#[test]
fn a_kernel_that_writes_nothing_fails_the_check() {
    let Some(fake) = fake() else { return };
    let assert = matmul(fake, &[("FAKE_KERNEL", "nothing")], SMALL)
        .assert()
        .code(1);
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(
        printed.contains("FAIL, 600 wrong elements, the first C[0, 0] = NaN"),
        "{printed}"
    );
}

#[test]
fn one_wrong_element_fails_the_check() {
    let Some(fake) = fake() else { return };
    let assert = matmul(fake, &[("FAKE_KERNEL", "wrong")], SMALL)
        .assert()
        .code(1);
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(
        printed.contains("FAIL, 1 wrong element, the first C[2, 3] = "),
        "{printed}"
    );
    // One variant: each case computes its products on the CPU here.
    let variant = kernels::gemm::all().next().unwrap().name;
    let verify = format!("verify --random 0 --kernel {variant}");
    let assert = matmul(fake, &[("FAKE_KERNEL", "wrong")], &verify)
        .assert()
        .code(1);
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(
        printed.lines().last().unwrap().ends_with("FAIL"),
        "{printed}"
    );
}

/// The counterpart of the two tests above: on the same driver, right results
/// pass.
#[test]
fn a_right_result_passes() {
    let Some(fake) = fake() else { return };
    let right = [("FAKE_KERNEL", "right")];
    let assert = matmul(fake, &right, &format!("{SMALL} --kernel all"))
        .assert()
        .success()
        .stderr("");
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for variant in kernels::gemm::all() {
        let line = printed.lines().find(|line| line.starts_with(variant.name));
        assert!(line.is_some_and(|line| line.contains("PASS")), "{printed}");
    }
}
