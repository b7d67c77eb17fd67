//! What the program says on machines of every kind: without a driver, with one
//! that is broken, old or lacks a device, with kernels that fail.
//!
//! A library of a few lines of C takes the driver's place, found through
//! `LD_LIBRARY_PATH`; `environment/fake_driver.c` says how it is set up.

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

/// A folder for the libraries of one case. Another run may use it too.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("environment")
        .join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder with files of the driver's names that are no libraries. The linker
/// stops at the first file of the name, so they hide a real driver.
fn no_library() -> PathBuf {
    let folder = folder("no_library");
    for name in ["libcuda.so.1", "libcuda.so"] {
        fs::write(folder.join(name), "not a library\n").unwrap();
    }
    folder
}

/// Compiles the fake driver into a folder and returns the folder, or nothing
/// where there is no `cc`.
fn compile(name: &str, arguments: &[&str]) -> Option<PathBuf> {
    let folder = folder(name);
    // Another run may have the library open.
    let fresh = folder.join(format!("fresh_{}", std::process::id()));
    let built = std::process::Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror"])
        .args(["-shared", "-fPIC"])
        .args(arguments)
        .arg("-o")
        .arg(&fresh)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/environment/fake_driver.c"
        ))
        .output();
    match built {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc: {said}");
            fs::rename(&fresh, folder.join("libcuda.so.1")).unwrap();
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
    let folder = no_library();
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
    // Without `cc`, the complete one says so.
    let (Some(_), Some(folder)) = (fake(), compile("no_cuinit", &["-DcuInit=other"])) else {
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
    for capability in ["75", "86", "90"] {
        let settings = [("FAKE_CC", capability), ("FAKE_VERSION", "10000")];
        let parts = ["PTX 7.0", "CUDA 11.0", "CUDA 10.0", "update the driver"];
        fails(fake, &settings, SMALL, 1, &parts);
        doctor_finds(fake, &settings, "device 0", "failed", &parts);
    }
}

/// A device runs what its driver takes, and is told what the driver lacks. A
/// driver before CUDA 12 has no function for tensor maps either.
#[test]
fn an_old_driver_gets_older_kernels() {
    let (Some(new), Some(old)) = (
        fake(),
        compile("before_cuda_12", &["-DWITHOUT_cuTensorMapEncodeTiled"]),
    ) else {
        return;
    };
    for (capability, version, gets) in [
        ("75", "11000", "sm_75"),
        (
            "80",
            "11040",
            "sm_75, since sm_80 needs a driver for CUDA 11.5",
        ),
        ("80", "11050", "sm_80"),
        (
            "90",
            "11040",
            "sm_75, since sm_90a needs a driver for CUDA 12.0",
        ),
        (
            "90",
            "11080",
            "sm_80, since sm_90a needs a driver for CUDA 12.0",
        ),
        ("90", "12000", "sm_90a"),
        ("120", "12080", "sm_80"),
    ] {
        let settings = [
            ("FAKE_CC", capability),
            ("FAKE_VERSION", version),
            ("FAKE_KERNEL", "right"),
        ];
        let fake = if version < "12" { &old } else { new };
        let assert = matmul(fake, &settings, SMALL).assert().success().stderr("");
        let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        let line = printed.lines().next().unwrap();
        assert!(line.ends_with(&format!(", kernels for {gets}")), "{line}");
        let gets = format!(" gets {gets}; ");
        doctor_finds(fake, &settings, "device 0", "ok", &[&gets]);
        doctor_finds(fake, &settings, "driver", "ok", &[]);
    }
    // One for CUDA 12 has to have the function.
    let parts = ["lacks cuTensorMapEncodeTiled", "Remedy: update the driver"];
    doctor_finds(&old, &[], "driver", "failed", &parts);
}

/// A kernel that was asked for by name and cannot be run has not passed.
#[test]
fn a_kernel_that_the_device_does_not_run() {
    let Some(fake) = fake() else { return };
    let right = ("FAKE_KERNEL", "right");
    for command in [SMALL, "verify --random 0"] {
        let command = format!("{command} --kernel tma");
        let old_driver = [right, ("FAKE_VERSION", "11080")];
        let parts = [
            "kernels of tma",
            "PTX 8.0",
            "CUDA 12.0",
            "CUDA 11.8",
            "update the driver",
        ];
        fails(fake, &old_driver, &command, 1, &parts);
        for (capability, part) in [
            ("80", "tma needs compute capability 9.0"),
            ("120", "tma needs the features of sm_90"),
        ] {
            let parts = [part, "choose another variant"];
            fails(fake, &[right, ("FAKE_CC", capability)], &command, 1, &parts);
        }
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
    // Without `cc`, the complete one says so.
    let (Some(_), Some(folder)) = (fake(), compile("without", &["-DWITHOUT_cuCtxSynchronize"]))
    else {
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

#[test]
fn the_fake_has_the_functions_that_are_called_and_no_others() {
    let fake: BTreeSet<_> = include_str!("environment/fake_driver.c")
        .lines()
        .filter_map(|line| line.strip_prefix("int cu")?.split_once('('))
        .map(|(name, _)| format!("cu{name}"))
        .collect();
    let called = host::doctor::CALLED.iter().map(ToString::to_string);
    assert_eq!(fake, called.collect());
}

/// The line of a check.
#[track_caller]
fn check_line<'a>(report: &'a str, check: &str) -> &'a str {
    report
        .lines()
        .find(|line| line.get(11..).is_some_and(|rest| rest.starts_with(check)))
        .unwrap_or_else(|| panic!("no check {check} in:\n{report}"))
}

/// Status and line of a check in the report of `matmul doctor`.
#[track_caller]
fn doctor(folder: &Path, settings: &[(&str, &str)], check: &str) -> (String, String) {
    let assert = matmul(folder, settings, "doctor").assert().stderr("");
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let line = check_line(&printed, check);
    let status = line.split_whitespace().next().unwrap();
    // A machine that lacks what it takes to run on a GPU is no success.
    if status != "ok" && (check.starts_with("device") || check == "driver") {
        assert.code(1);
        assert!(printed.ends_with("to run on a GPU: no\n"), "{printed}");
    } else if status == "ok" && check.starts_with("device") {
        assert!(printed.ends_with("to run on a GPU: yes\n"), "{printed}");
    }
    (status.to_owned(), line.to_owned())
}

#[track_caller]
fn doctor_finds(
    folder: &Path,
    settings: &[(&str, &str)],
    check: &str,
    status: &str,
    parts: &[&str],
) {
    let (found, line) = doctor(folder, settings, check);
    assert_eq!(found, status, "{line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
}

#[test]
fn doctor_names_every_attempt_at_a_driver() {
    let folder = no_library();
    let wsl = "/usr/lib/wsl/lib/libcuda.so.1";
    if Path::new(wsl).exists() {
        return doctor_finds(&folder, &[], "driver", "ok", &[]);
    }
    let parts = ["libcuda.so.1: ", "; libcuda.so: ", wsl, "Remedy: install"];
    doctor_finds(&folder, &[], "driver", "missing", &parts);
}

#[test]
fn doctor_looks_at_driver_and_devices() {
    let Some(fake) = fake() else { return };
    let right = ("FAKE_KERNEL", "right");
    let path = fake.join("libcuda.so.1");
    let parts = [
        path.to_str().unwrap(),
        "CUDA 12.8",
        "none that this program calls",
    ];
    doctor_finds(fake, &[right], "driver", "ok", &parts);
    let parts = [
        "Fake GPU A",
        "9.0",
        "ECC on",
        "16.0 GiB",
        "8.0 GiB free",
        "gets sm_90a",
    ];
    doctor_finds(fake, &[right], "device 0", "ok", &parts);

    let hidden = ("CUDA_VISIBLE_DEVICES", "");
    let parts = ["sees none", "Remedy: unset CUDA_VISIBLE_DEVICES"];
    doctor_finds(fake, &[hidden], "devices", "missing", &parts);
    let parts = ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "Remedy"];
    doctor_finds(fake, &[("FAKE_INIT", "803")], "devices", "missing", &parts);

    let old = [("FAKE_VERSION", "11000")];
    let parts = [
        "CUDA 12.0 or later",
        "the driver's is 11.0",
        "Remedy: update",
    ];
    doctor_finds(fake, &old, "PTX sm_90a", "failed", &parts);
    doctor_finds(
        fake,
        &[("FAKE_CC", "70")],
        "device 0",
        "failed",
        &["7.0", "7.5"],
    );
    doctor_finds(
        fake,
        &[("FAKE_MODULE", "222")],
        "device 0",
        "failed",
        &["(222)"],
    );
    // Everything answers, and the results are wrong.
    let parts = ["C[0, 0] = NaN", "Remedy"];
    doctor_finds(
        fake,
        &[("FAKE_KERNEL", "nothing")],
        "device 0",
        "failed",
        &parts,
    );
}

#[test]
fn doctor_passes_where_one_device_of_two_works() {
    let Some(fake) = fake() else { return };
    let settings = [
        ("FAKE_KERNEL", "right"),
        ("FAKE_DEVICES", "2"),
        ("FAKE_OLD_DEVICE", "1"),
    ];
    doctor_finds(fake, &settings, "device 0", "ok", &[]);
    let assert = matmul(fake, &settings, "doctor").assert();
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(printed.contains("failed   device 1"), "{printed}");
    assert!(printed.ends_with("to run on a GPU: yes\n"), "{printed}");
}

#[test]
fn doctor_names_a_missing_function() {
    // Without `cc`, the complete one says so.
    let (Some(_), Some(folder)) = (
        fake(),
        compile("doctor_without", &["-DWITHOUT_cuCtxSynchronize"]),
    ) else {
        return;
    };
    let parts = ["lacks cuCtxSynchronize", "Remedy: update the driver"];
    doctor_finds(&folder, &[], "driver", "failed", &parts);
}

#[test]
fn a_driver_without_graphs_launches_one_by_one() {
    // Without `cc`, the complete one says so.
    let (Some(_), Some(folder)) = (
        fake(),
        compile("without_graphs", &["-DcuGraphInstantiateWithFlags=other"]),
    ) else {
        return;
    };
    let right = [("FAKE_KERNEL", "right")];
    let parts = ["lacks cuGraphInstantiateWithFlags", "one by one"];
    doctor_finds(&folder, &right, "driver", "ok", &parts);
    let assert = matmul(&folder, &right, &format!("{SMALL} --graphs on --json"))
        .assert()
        .success();
    let printed: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!(printed["results"][0]["batched_by"], "launches");
}

/// A copy of the program, to be run from outside the checkout.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("matmul_copy_{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // By another process: a file that this one holds open for writing can
        // stay so in a child that another test is starting, and would not run.
        let copied = std::process::Command::new("cp")
            .args([cargo_bin!("matmul"), &folder.join("matmul")])
            .status();
        assert!(copied.unwrap().success());
        Self { folder }
    }

    /// Runs it with nothing on the PATH and no variables but these.
    fn run(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
        std::process::Command::new(self.folder.join("matmul"))
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("PATH", self.folder.join("empty"))
            .envs(settings.iter().copied())
            .output()
            .unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// As on a GPU machine that was given the program and nothing else.
#[test]
fn doctor_works_on_a_bare_machine() {
    let Some(fake) = fake() else { return };
    let copy = Copy::new();
    let bare = |settings: &[(&str, &str)]| {
        let mut all = vec![
            ("LD_LIBRARY_PATH", fake.to_str().unwrap()),
            // Debian's compiler is looked for by its path.
            ("DEVICE_RUSTC", "/no/such/rustc"),
        ];
        all.extend(settings);
        let output = copy.run(&["doctor", "--json"], &all);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), json)
    };
    let (code, json) = bare(&[("FAKE_KERNEL", "right")]);
    for name in ["rustc", "cargo", "device rustc", "rust-src", "cc"] {
        let checks = json["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        assert_eq!(check["status"], "missing", "{check}");
        assert_eq!(check["needed"], false, "{check}");
        assert!(check["remedy"].is_string(), "{check}");
    }
    let ready = serde_json::json!({ "build": false, "cpu": true, "gpu": true });
    assert_eq!(json["ready"], ready);
    assert_eq!((code, &json["passed"]), (Some(0), &true.into()));

    let (code, json) = bare(&[("FAKE_KERNEL", "wrong")]);
    assert_eq!(json["ready"]["gpu"], false);
    assert_eq!((code, &json["passed"]), (Some(1), &false.into()));
}

/// In a checkout, what building takes is needed.
#[test]
fn doctor_wants_a_toolchain_in_a_checkout() {
    let Some(fake) = fake() else { return };
    let settings = [
        ("FAKE_KERNEL", "right"),
        ("PATH", ""),
        ("DEVICE_RUSTC", "/no/such/rustc"),
    ];
    let parts = ["/no/such/rustc", "Remedy: run `make setup`"];
    let assert = matmul(fake, &settings, "doctor").assert().code(1);
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let line = printed
        .lines()
        .find(|line| line.contains("  device rustc  "));
    for part in parts {
        assert!(line.is_some_and(|line| line.contains(part)), "{printed}");
    }
    assert!(
        printed.ends_with("ready to build: no, to run on the CPU: yes, to run on a GPU: yes\n"),
        "{printed}"
    );
}

/// Tools are found where tools/ptxas.sh would find them, and libraries where
/// the loader does.
#[test]
fn doctor_finds_tools() {
    let Some(fake) = fake() else { return };
    let folder = folder("tools");
    let tool = |name: &str, script: &str| {
        let path = folder.join(name);
        // By another process, as the copy above.
        let written = std::process::Command::new("sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1""#,
            ])
            .args([OsStr::new("sh"), path.as_os_str(), OsStr::new(script)])
            .status();
        assert!(written.unwrap().success());
        path
    };
    let ptxas = tool("ptxas-13.5.37", "echo 'Cuda tools, release 13.5, V13.5.37'");
    let ncu = tool("ncu", "echo NVIDIA; echo 'Version 2026.1 (build 7)'");
    let broken = tool("broken", "echo it is broken >&2; exit 3");
    let settings = [
        ("PATH", folder.to_str().unwrap()),
        ("PTX_TOOLS", folder.to_str().unwrap()),
        ("NVDISASM", broken.to_str().unwrap()),
    ];
    for (check, status, parts) in [
        ("ptxas", "ok", ["V13.5.37", ptxas.to_str().unwrap()]),
        (
            "ncu",
            "ok",
            ["Version 2026.1 (build 7)", ncu.to_str().unwrap()],
        ),
        ("nvdisasm", "failed", ["it is broken", "Remedy: "]),
        ("cuBLAS", "missing", ["libcublas.so.12", "Remedy: "]),
    ] {
        if check == "cuBLAS" && has_cublas() {
            continue;
        }
        let assert = matmul(fake, &settings, "doctor").assert();
        let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        let line = check_line(&printed, check);
        assert!(line.starts_with(&format!("  {status}")), "{line}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }
    }

    let cublas = folder.join("libcublas.so.13");
    let source = folder.join("cublas.c");
    fs::write(
        &source,
        "int cublasGetProperty(int p, int *v) { *v = 13 + p; return 0; }\n",
    )
    .unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&cublas, &source])
        .status();
    assert!(built.unwrap().success());
    let found = doctor(&folder, &[], "cuBLAS").1;
    assert!(found.contains("13.14.15, libcublas.so.13"), "{found}");
}

/// Whether the loader finds cuBLAS on this machine anyway.
fn has_cublas() -> bool {
    let cache = std::process::Command::new("/sbin/ldconfig")
        .arg("-p")
        .output();
    cache.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libcublas.so"))
}
