//! The command line: help, output, exit codes, and no panic whatever the
//! arguments. What depends on a driver is in `environment.rs`.

use assert_cmd::Command;
use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

fn matmul(arguments: &str) -> Command {
    let mut command = cargo_bin_cmd!("matmul");
    command
        // clap folds help at the terminal's width, which this stands for.
        .env_remove("COLUMNS")
        .env("RUST_BACKTRACE", "1")
        .args(arguments.split_whitespace());
    command
}

/// What a successful run prints.
#[track_caller]
fn printed(arguments: &str) -> String {
    let assert = matmul(arguments).assert().success().stderr("");
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

// Few snapshots: every command's help is looked at below, by its structure.

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(printed("--help"));
}

#[test]
fn help_of_doctor() {
    insta::assert_snapshot!(printed("doctor --help"));
}

/// The commands, from the program's help.
fn commands() -> Vec<String> {
    let help = printed("--help");
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    rest.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect()
}

#[test]
fn every_command_has_help() {
    let commands = commands();
    for known in ["run", "list", "verify", "doctor"] {
        assert!(commands.iter().any(|command| command == known), "{known}");
    }
    for command in commands.iter().filter(|command| *command != "help") {
        let help = printed(&format!("{command} --help"));
        assert!(help.contains(&format!("Usage: matmul {command}")), "{help}");
        assert_eq!(printed(&format!("help {command}")), help);
        assert!(printed(&format!("{command} -h")).contains("Usage: "));
    }
}

#[test]
fn list_names_every_kernel() {
    let list = printed("list");
    let names: Vec<_> = list
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let expected: Vec<_> = host::measure::Cpu::ALL
        .iter()
        .map(|cpu| cpu.name())
        .chain(kernels::gemm::all().map(|variant| variant.name))
        .collect();
    assert_eq!(names, expected, "{list}");
}

#[test]
fn wrong_requests_end_with_2() {
    let too_large = "is too large: a dimension is at most 4294963200";
    for (arguments, part) in [
        ("run --kernel tilde_16", "tiled_16"),
        ("verify --kernel tilde_16", "tiled_16"),
        ("run --m 4294967296", too_large),
        ("run --n 4294967296 --kernel cpu", too_large),
        ("run --m 18446744073709551615", too_large),
        ("run --m 18446744073709551616", "--m"),
        ("run --m -1", "-1"),
        ("run --k 1e3", "1e3"),
        ("run --m=", "--m"),
        ("run --m", "--m"),
        ("run --kernel", "--kernel"),
        ("run --device -1", "-1"),
        ("run --device 4294967296", "--device"),
        ("run --iterations 0", "0"),
        ("run --seed x", "--seed"),
        ("run extra", "extra"),
        ("run --no-such-flag", "--no-such-flag"),
        ("verify --random 18446744073709551615", "--random"),
        ("doctor --jsn", "--json"),
        ("runn", "run"),
        ("", "Usage: matmul"),
    ] {
        let assert = matmul(arguments).assert().code(2).stdout("");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains(part), "matmul {arguments}: {said}");
        assert!(!said.contains("panicked"), "matmul {arguments}: {said}");
    }
}

#[test]
fn odd_arguments_are_no_panic() {
    for argument in [
        &b"\xff\xfe"[..],
        b"",
        b"--",
        b"-",
        b"\xf0\x9f\x92\xa5",
        b"%s%n",
    ] {
        for before in [&[][..], &["run"], &["run", "--kernel"], &["run", "--m"]] {
            let output = matmul("")
                .args(before)
                .arg(OsStr::from_bytes(argument))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
            assert!(
                !said.contains("panicked"),
                "{before:?} {argument:?}: {said}"
            );
        }
    }
}

#[test]
fn the_cpu_passes() {
    for (kernel, shape) in [
        ("cpu", [17, 33, 19]),
        ("cpu_gemm", [17, 33, 19]),
        ("cpu", [0, 5, 7]),
        ("cpu_gemm", [5, 7, 0]),
    ] {
        let [m, n, k] = shape;
        let text = printed(&format!(
            "run --kernel {kernel} --m {m} --n {n} --k {k} --iterations 3"
        ));
        let row: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        // Between the launches and the result stand time, unit and GFLOP/s.
        let [name, size, launches, time, unit, rate, result, ..] = row[..] else {
            panic!("{text}");
        };
        assert_eq!((name, launches), (kernel, "3"), "{text}");
        assert_eq!(size, format!("{m}×{n}×{k}"));
        assert!(time.parse::<f64>().unwrap() >= 0.0 && rate.parse::<f64>().unwrap() >= 0.0);
        assert!(["µs", "ms", "s"].contains(&unit), "{text}");
        assert_eq!(result, "PASS,");
    }
}

#[test]
fn a_product_beyond_the_machines_memory_is_refused() {
    for kernel in ["cpu", "cpu_gemm"] {
        let assert = matmul("run --m 4294963200 --n 4294963200 --kernel")
            .arg(kernel)
            .assert()
            .code(1)
            .stdout("");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("4294963200×4294963200×320 needs"), "{said}");
    }
}

fn run_with(arguments: &str, redirect: impl FnOnce(&mut std::process::Command)) -> Output {
    let mut command = std::process::Command::new(cargo_bin!("matmul"));
    command
        .env("RUST_BACKTRACE", "1")
        .args(arguments.split_whitespace())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    redirect(&mut command);
    let child = command.spawn().unwrap();
    // It holds this process's copy of a pipe's end.
    drop(command);
    child.wait_with_output().unwrap()
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    const SIGPIPE: i32 = 13;
    for arguments in ["list", "--help", "run --kernel cpu", "doctor"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run_with(arguments, |command| {
            command.stdout(writer);
        });
        assert_eq!(output.status.signal(), Some(SIGPIPE), "{output:?}");
        assert_eq!(output.stderr, b"");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = run_with("run --m 4294967296", |command| {
        command.stderr(writer);
    });
    assert_eq!(output.status.signal(), Some(SIGPIPE), "{output:?}");
}

#[test]
fn a_full_disk_is_one_line() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let output = run_with("list", |command| {
        command.stdout(full());
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.starts_with("error: ") && said.contains("No space left"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let output = run_with("run --m 4294967296", |command| {
        command.stderr(full());
    });
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
