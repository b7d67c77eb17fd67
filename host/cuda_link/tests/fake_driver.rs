//! Runs the symbols against a driver made of a few lines of C, and against none.
//!
//! A process opens the driver once, so each case is a child process: this same
//! program, asked for one ignored test. The child finds the fake through
//! `LD_LIBRARY_PATH`.

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use find_cuda_helper::{Code, driver, last_error};

/// `CUipcMemHandle`, by its size.
#[repr(C)]
struct Handle([u64; 8]);

// Declared as cust_raw declares them: the link has to find the symbols.
unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDriverGetVersion(version: *mut c_int) -> c_int;
    fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int;
    fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int;
    fn cuDeviceGetCount(count: *mut c_int) -> c_int;
    fn cuCtxSynchronize() -> c_int;
    fn cuTexRefSetMipmapLevelBias(texture: *mut c_void, bias: f32) -> c_int;
    fn cuIpcOpenMemHandle_v2(pointer: *mut u64, handle: Handle, flags: c_uint) -> c_int;
    fn cuLaunchKernel(
        f: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: *mut c_void,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}

/// Set for a child: what the fake's `cuInit` returns.
const FAKE_CUINIT: &str = "FAKE_CUINIT";

/// Written past the harness, which hides what a passing test prints.
fn skipped(why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

fn fresh_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs one ignored test of this program with `folder` before all others in the
/// search for libraries.
fn run_child(test: &str, folder: &Path, init_code: c_int) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env("LD_LIBRARY_PATH", folder)
        .env(FAKE_CUINIT, init_code.to_string())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{test} failed in its process ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn calls_pass_through_to_a_driver() {
    let folder = fresh_folder("with_driver");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_driver.c"))
        .status();
    match built {
        Ok(status) => assert!(status.success(), "cc: {status}"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return skipped("no `cc` to build the fake driver with");
        }
        Err(error) => panic!("cc: {error}"),
    }
    run_child("child_with_driver", &folder, 0);
    run_child("child_with_driver", &folder, 100);
}

#[test]
fn calls_answer_without_a_driver() {
    if Path::new("/usr/lib/wsl/lib/libcuda.so.1").exists() {
        return skipped("WSL's driver cannot be hidden from the search");
    }
    // The linker stops at the first file of the name, so these hide a real
    // driver and make the case the same on every machine.
    let folder = fresh_folder("without_driver");
    for name in ["libcuda.so.1", "libcuda.so"] {
        fs::write(folder.join(name), "not a library\n").unwrap();
    }
    run_child("child_without_driver", &folder, 0);
}

#[test]
#[ignore = "started by calls_pass_through_to_a_driver"]
fn child_with_driver() {
    let Ok(code) = env::var(FAKE_CUINIT) else {
        return;
    };
    let code: c_int = code.parse().unwrap();

    let mut count = -1;
    // SAFETY: the pointer is valid; the fake only writes through it.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 3);
    assert_eq!(count, -1, "a stub wrote something");

    let driver = driver().unwrap();
    assert_eq!(driver.name(), "libcuda.so.1");
    assert!(driver.path().unwrap().ends_with("with_driver/libcuda.so.1"));
    assert!(driver.missing().contains(&"cuCtxSynchronize"));
    assert!(!driver.missing().contains(&"cuLaunchKernel"));

    // SAFETY: as above.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 0);
    assert_eq!(count, 0, "loading alone called cuInit");
    // SAFETY: the fake's cuInit reads only its argument and the environment.
    assert_eq!(unsafe { cuInit(0) }, code);
    // SAFETY: as above.
    assert_eq!(unsafe { cuInit(5) }, 1, "the flags did not arrive");
    // SAFETY: as above.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 0);
    assert_eq!(count, 2);

    let mut version = 0;
    // SAFETY: the pointer is valid; the fake only writes through it.
    assert_eq!(unsafe { cuDriverGetVersion(&mut version) }, 0);
    assert_eq!(version, 12345);

    // SAFETY: the fake lacks this function, so a stub answers.
    assert_eq!(unsafe { cuCtxSynchronize() }, 500);

    let mut bias = 0.0_f32;
    // SAFETY: the fake writes one float to the texture's address.
    let result = unsafe { cuTexRefSetMipmapLevelBias((&raw mut bias).cast(), -2.75) };
    assert_eq!((result, bias), (0, -2.75));

    let mut seen = [0_u64; 11];
    let params = (&raw mut seen).cast::<*mut c_void>();
    // SAFETY: the fake writes 11 words to `params` and follows no other pointer.
    let result = unsafe {
        cuLaunchKernel(
            ptr::without_provenance_mut(0x1111_2222_3333_4444),
            2,
            3,
            4,
            5,
            6,
            7,
            u32::MAX,
            ptr::without_provenance_mut(0x5555_6666_7777_8888),
            params,
            ptr::without_provenance_mut(0x9999_aaaa_bbbb_cccc),
        )
    };
    assert_eq!(result, 700);
    assert_eq!(last_error(), Some(Code(700)));
    assert_eq!(
        seen,
        [
            0x1111_2222_3333_4444,
            2,
            3,
            4,
            5,
            6,
            7,
            u64::from(u32::MAX),
            0x5555_6666_7777_8888,
            params.addr() as u64,
            0x9999_aaaa_bbbb_cccc,
        ]
    );

    assert_eq!(text(cuGetErrorString, 100), (0, "the fake's text"));
    // The fake has texts and no names.
    assert_eq!(Code(100).to_string(), "CUDA error 100: the fake's text");
    assert_eq!(
        last_error(),
        Some(Code(700)),
        "a success or a text replaced it"
    );

    let mut seen = [0_u64; 9];
    let handle = [11, 12, 13, 14, 15, 16, 17, u64::MAX];
    // SAFETY: the fake writes nine words to the pointer.
    let result = unsafe { cuIpcOpenMemHandle_v2(seen.as_mut_ptr(), Handle(handle), 19) };
    assert_eq!(
        result, 999,
        "a code that the bindings' enum lacks got through"
    );
    assert_eq!(last_error(), Some(Code(12345)));
    assert_eq!((&seen[..8], seen[8]), (&handle[..], 19));
}

#[test]
#[ignore = "started by calls_answer_without_a_driver"]
fn child_without_driver() {
    if env::var_os(FAKE_CUINIT).is_none() {
        return;
    }
    let mut count = -1;
    // SAFETY: a stub answers and reads no argument.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 3);
    // SAFETY: as above.
    assert_eq!(unsafe { cuInit(0) }, 34);
    // SAFETY: as above.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, 34);
    // SAFETY: as above.
    assert_eq!(unsafe { cuDriverGetVersion(&mut count) }, 34);
    assert_eq!(count, -1, "a stub wrote something");

    assert_eq!(last_error(), Some(Code(34)));

    assert_eq!(text(cuGetErrorName, 34), (0, "CUDA_ERROR_STUB_LIBRARY"));
    assert_eq!(
        Code(34).to_string(),
        "CUDA_ERROR_STUB_LIBRARY (34): no CUDA driver library could be loaded (libcuda.so.1)"
    );
    // Every code has a text: cust fails to format an error that has none.
    for code in [0, 1, 3, 34, 500, 999, 12345] {
        assert_eq!(text(cuGetErrorString, code).0, 0);
        assert!(!text(cuGetErrorString, code).1.is_empty());
    }
    // SAFETY: a null pointer is allowed and refused.
    assert_eq!(unsafe { cuGetErrorString(34, ptr::null_mut()) }, 1);

    let error = driver().unwrap_err();
    let names: Vec<_> = error.attempts().iter().map(|a| a.name()).collect();
    assert_eq!(
        names,
        [
            "libcuda.so.1",
            "libcuda.so",
            "/usr/lib/wsl/lib/libcuda.so.1"
        ]
    );
    assert!(error.attempts().iter().all(|a| !a.error().is_empty()));
    assert!(error.to_string().contains("libcuda.so.1"));
}

fn text(
    of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    error: c_int,
) -> (c_int, &'static str) {
    let mut text = ptr::null();
    // SAFETY: the pointer is valid for the write.
    let result = unsafe { of(error, &mut text) };
    assert!(!text.is_null());
    // SAFETY: the texts of this crate and of the fake are constants.
    let text = unsafe { CStr::from_ptr(text) };
    (result, text.to_str().unwrap())
}
