//! The command line: help, output, exit codes, and no panic whatever the
//! arguments. What depends on a driver is in `environment.rs`.

use assert_cmd::Command;
use assert_cmd::cargo::{cargo_bin, cargo_bin_cmd};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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
        // What the program holds of each backend stands below an empty line.
        .take_while(|line| !line.is_empty())
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
        ("run --backend nvcc", "rust-cuda"),
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
fn a_backend_that_the_program_lacks_is_a_wrong_request() {
    let backend = kernels::launch::Backend::RustCuda;
    if host::ptx::of(backend).next().is_some() {
        assert!(printed("list").contains("rust-cuda: in this program for sm_"));
        return;
    }
    assert!(printed("list").contains("rust-cuda: not in this program"));
    for arguments in [
        "run --backend rust-cuda",
        "run --kernel all --backend both",
        "verify --backend rust-cuda",
    ] {
        let assert = matmul(arguments).assert().code(2).stdout("");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains("MATMUL_RUST_CUDA_PTX"), "{said}");
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

fn json(arguments: &str) -> serde_json::Value {
    let text = printed(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
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
        let arguments =
            format!("run --kernel {kernel} --m {m} --n {n} --k {k} --iterations 3 --json");
        let printed = json(&arguments);
        assert!(printed["device"].is_null());
        let result = &printed["results"][0];
        assert_eq!(result["kernel"], kernel);
        assert_eq!([&result["m"], &result["n"], &result["k"]], [m, n, k]);
        assert_eq!(result["launches"], 3);
        assert_eq!(result["passed"], true);
        assert!(result["seconds"].as_f64().unwrap() >= 0.0);
        assert_eq!(printed["results"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn one_product_is_reported_as_the_sample_does() {
    let text = printed("run --kernel cpu --iterations 2");
    assert!(
        text.contains("A 320×320, B 320×640, C 320×640 (rows×columns)"),
        "{text}"
    );
    let line = text
        .lines()
        .find(|line| line.contains("Performance= "))
        .unwrap();
    assert!(line.contains(" GFlop/s, Time= "), "{line}");
    assert!(line.contains(" msec, Size= 131072000 Ops"), "{line}");
    assert_eq!(text.lines().last(), Some("Result = PASS"), "{text}");
}

#[test]
fn the_samples_flags_give_width_and_height() {
    let arguments = "run --kernel cpu -wA=7 -hA=5 -wB=3 -hB=7 -device=0 --json";
    let result = json(arguments)["results"][0].clone();
    assert_eq!([&result["m"], &result["n"], &result["k"]], [5, 3, 7]);
    // A 320×320 and B 640×320 unless said otherwise.
    let result = json("run --kernel cpu -wB=64 --json")["results"][0].clone();
    assert_eq!([&result["m"], &result["n"], &result["k"]], [320, 64, 320]);
    let assert = matmul("run --kernel cpu -wA=3 --m 3").assert().code(2);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn inner_dimensions_that_differ_name_both_shapes() {
    for kernel in ["cpu", "tiled_16"] {
        let arguments = format!("run --kernel {kernel} -wA=320 -hA=320 -wB=320 -hB=640");
        let assert = matmul(&arguments).assert().code(2).stdout("");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains("A is 320×320 and B is 640×320"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_plan_needs_no_gpu() {
    let arguments = "plan --kernel all --m 65536 --n 32768 --k 1 --gpu rtx4090 --json";
    let printed = json(arguments);
    assert_eq!(printed["device"], "rtx4090");
    assert_eq!(printed["floor"]["flops"], 2.0f64.powi(32));
    assert_eq!(
        printed["floor"]["bytes"],
        4.0 * (65536.0 + 32768.0 + 2.0f64.powi(31))
    );
    assert_eq!(printed["floor"]["limit"], "memory");
    let plans = printed["plans"].as_array().unwrap();
    // All but those for Hopper alone.
    let plain = kernels::gemm::all()
        .filter(|variant| variant.min_compute_capability.major < 9)
        .count();
    assert_eq!(plans.len(), plain);
    let naive = plans
        .iter()
        .find(|plan| plan["name"] == "naive_16" || plan["kernel"] == "naive_16")
        .unwrap();
    assert_eq!(
        naive["launches"][0]["grid"],
        serde_json::json!([2048, 4096, 1])
    );

    let text = self::printed("plan --kernel tiled_16 --m 1000 --n 1000 --k 1000");
    assert!(
        text.contains("grid 63×63×1 (3969 blocks), block 16×16×1"),
        "{text}"
    );
    assert!(text.contains("limited by compute"), "{text}");
    let text = self::printed("plan --m 0");
    assert!(text.contains("launches nothing"), "{text}");
    matmul("plan --gpu nosuch").assert().code(2);
}

#[test]
fn the_list_is_the_table() {
    let printed = json("list --json");
    let rows = printed.as_array().unwrap();
    for variant in kernels::gemm::all() {
        let row = rows.iter().find(|row| row["name"] == variant.name).unwrap();
        let names: Vec<_> = variant.entries.iter().map(|entry| entry.name).collect();
        assert_eq!(row["kernels"], serde_json::json!(names));
        let backends: Vec<_> = variant.backends().map(|backend| backend.name()).collect();
        assert_eq!(row["backends"], serde_json::json!(backends));
    }
    assert_eq!(rows.len(), kernels::gemm::all().count() + 2);
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

#[test]
fn a_simulation_needs_no_gpu() {
    let reports = json("simulate --kernel tiled_16 --m 20 --n 30 --k 40 --json");
    let report = &reports[0];
    assert_eq!(report["variant"], "tiled_16");
    assert_eq!(report["faults"], serde_json::json!([]));
    let counters = &report["launches"][0]["counters"];
    // 2 × 2 tiles of 16 × 16 threads, 3 steps of 16: none is left out.
    let fmas = 2 * 2 * 256 * 3 * 16;
    assert_eq!(counters["flops"]["fma_f32"], fmas);
    assert_eq!(counters["barriers"], 4 * 3 * 2);

    let text = printed("simulate --kernel naive_16 --m 20 --n 30 --k 40 --by-line");
    assert!(text.contains("checks: no fault"), "{text}");
    assert!(text.contains("kernels/src/gemm/naive.rs:"), "{text}");
    let text = printed("simulate --kernel vecadd --n 1000");
    assert!(text.contains("FLOPs: 1,000"), "{text}");
    matmul("simulate --arch sm_12").assert().code(2);
    matmul("simulate --kernel nosuch").assert().code(2);
}

/// All of them would take it seconds.
#[test]
fn ptxas_assembles_the_simulated_kernels_alone() {
    // Gives each kernel that it is asked for 40 registers.
    let script = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = --entry ]; then
        echo "$2" >>"$0.asked"
        echo "ptxas info    : Function properties for $2" >&2
        echo "ptxas info    : Used 40 registers" >&2
    fi
    shift
done
"#;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ptxas = folder.join(format!("ptxas_{}", std::process::id()));
    let asked = ptxas.with_extension("asked");
    // By another process: a file that this one holds open for writing can stay
    // so in a child that another test is starting, and would not run.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf %s "$2" >"$1" && chmod +x "$1""#, "sh"])
        .args([ptxas.as_os_str(), OsStr::new(script)])
        .status();
    assert!(written.unwrap().success());
    for (arguments, kernels) in [
        (
            "simulate --kernel tiled_16,vecadd --n 40",
            "gemm_tiled_16 vecadd",
        ),
        ("simulate --kernel tiled_16 --n 0", ""),
        (
            "explain tiled_32 naive_16 tiled_32 --n 40",
            "gemm_naive_16 gemm_tiled_32",
        ),
    ] {
        let mut command = matmul(arguments);
        command
            .env("PTXAS", &ptxas)
            .args(["--m=33", "--k=20", "--json"]);
        let output = command.assert().success().get_output().stdout.clone();
        let printed: serde_json::Value = serde_json::from_slice(&output).unwrap();
        for report in printed.as_array().into_iter().flatten() {
            for launch in report["launches"].as_array().unwrap() {
                assert_eq!(launch["occupancy"]["registers"], 40, "{launch}");
            }
        }
        let mut found: Vec<_> = fs::read_to_string(&asked)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        found.sort();
        assert_eq!(found.join(" "), kernels, "{arguments}");
        let _ = fs::remove_file(&asked);
    }
    fs::remove_file(&ptxas).unwrap();
}

#[test]
fn an_explanation_sets_kernels_side_by_side() {
    let text = printed("explain naive_16 tiled_16 --m 64 --n 64 --k 64");
    assert!(text.contains("tiled_16 moves 131,072 bytes"), "{text}");
    assert!(text.contains("a factor of 8.00"), "{text}");
    matmul("explain").assert().code(2);
    matmul("explain nosuch").assert().code(2);
}
