//! `matmul bench`, `compare` and `profile` on machines of every kind: without a
//! GPU, and beside libraries of a few lines of C that take the places of the
//! driver, of cuBLAS and of NVML. Their sources say how they are set up.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("measuring")
        .join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles a library of tests/environment; false where there is no `cc`.
fn compile(source: &str, library: &Path) -> bool {
    // Another run may have the library open.
    let fresh = library.with_extension(format!("fresh_{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/environment")
        .join(source);
    let built = std::process::Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror"])
        .args(["-shared", "-fPIC", "-o"])
        .args([&fresh, &source])
        .output();
    match built {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc: {said}");
            fs::rename(&fresh, library).unwrap();
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => panic!("cc: {error}"),
    }
}

struct Fakes {
    /// The driver and NVML.
    gpu: PathBuf,
    /// cuBLAS's file.
    cublas: PathBuf,
}

fn fakes() -> Option<&'static Fakes> {
    static FAKES: OnceLock<Option<Fakes>> = OnceLock::new();
    FAKES
        .get_or_init(|| {
            let gpu = folder("gpu");
            let cublas = folder("cublas").join("libcublas_fake.so");
            let all = compile("fake_driver.c", &gpu.join("libcuda.so.1"))
                && compile("fake_nvml.c", &gpu.join("libnvidia-ml.so.1"))
                && compile("fake_cublas.c", &cublas);
            if !all {
                // Past the test harness, which hides what a passing test prints.
                let _ = writeln!(
                    io::stderr(),
                    "skipped: the tests with a fake GPU, since there is no `cc` to build it with"
                );
            }
            all.then_some(Fakes { gpu, cublas })
        })
        .as_ref()
}

fn command(arguments: &str) -> Command {
    let mut command = cargo_bin_cmd!("matmul");
    command
        .env("RUST_BACKTRACE", "1")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("MATMUL_SYNC")
        .env_remove("MATMUL_CUBLAS")
        .args(arguments.split_whitespace());
    command
}

/// On the fake GPU, whose kernels are right unless told otherwise.
fn on_fake(fakes: &Fakes, settings: &[(&str, &str)], arguments: &str) -> Command {
    let mut command = command(arguments);
    command
        .env("LD_LIBRARY_PATH", &fakes.gpu)
        .env("FAKE_KERNEL", "right")
        .env("MATMUL_CUBLAS", &fakes.cublas)
        .envs(settings.iter().copied());
    command
}

/// Without a driver: files of its names that are no libraries hide a real one.
fn without_gpu(arguments: &str) -> Command {
    let hidden = folder("no_gpu");
    for name in ["libcuda.so.1", "libcuda.so"] {
        fs::write(hidden.join(name), "not a library\n").unwrap();
    }
    let mut command = command(arguments);
    command.env("LD_LIBRARY_PATH", hidden);
    command
}

/// Runs a command: its exit code, what it printed, what it said.
#[track_caller]
fn outcome(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code().unwrap(), text(output.stdout), said)
}

#[track_caller]
fn json(command: Command, code: i32) -> Value {
    let (found, printed, said) = outcome(command);
    assert_eq!(found, code, "{printed}{said}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn rows<'a>(sweep: &'a Value, kernel: &str) -> Vec<&'a Value> {
    let rows = sweep["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["kernel"] == kernel).collect()
}

const QUICK: &str = "--rounds 3 --sustained 1 --pause 0";

#[test]
fn a_sweep_has_every_kernel_and_cublas_in_one_call() {
    let Some(fakes) = fakes() else { return };
    // Sizes that differ all, so that a call that swaps two of them is wrong.
    let arguments = format!("bench --shape 20x30x40,7x5x0,0x3x2 {QUICK} --json -");
    let sweep = json(on_fake(fakes, &[], &arguments), 0);
    let names = kernels::gemm::all().map(|variant| variant.name);
    for name in names.chain(["cublas_f32", "cublas_tf32", "cublas_bf16", "cublas_f16"]) {
        let rows = rows(&sweep, name);
        assert_eq!(rows.len(), 3, "{name}: {sweep:#}");
        let row = rows[0];
        assert_eq!(row["passed"], true, "{row:#}");
        for figure in ["sustained", "burst"] {
            assert_eq!(row[figure]["seconds"], serde_json::json!([0.1, 0.1, 0.1]));
        }
        // The fake's products take longer than a sustained batch.
        assert_eq!(row["cold"]["seconds"].as_array().unwrap().len(), 3);
        let halves = name.ends_with("16") && name.starts_with("cublas");
        assert_eq!(row["pinned"].is_null(), halves, "{row:#}");
        let elements = f64::from(20 * 40 + 40 * 30 + 20 * 30);
        assert_eq!(row["bytes"], elements * if halves { 2.0 } else { 4.0 });
        // What NVML said.
        assert_eq!(
            (&row["sm_mhz"], &row["watts"]),
            (&1755.0.into(), &654.321.into())
        );
        assert_eq!(row["throttling"], serde_json::json!([]));
        // An empty C is right, and not timed.
        assert_eq!(
            (&rows[2]["passed"], &rows[2]["sustained"]),
            (&true.into(), &Value::Null)
        );
    }
    for cpu in ["cpu", "cpu_gemm"] {
        assert_eq!(rows(&sweep, cpu).len(), 3);
        assert!(rows(&sweep, cpu)[0]["device"].is_null());
    }
    let device = &sweep["devices"][0];
    assert_eq!(device["driver"], "999.88.77");
    assert_eq!(device["power_limit_watts"], 700.0);
    assert!(
        device["cublas"].as_str().unwrap().contains("13.14.15"),
        "{device}"
    );
    assert_eq!(sweep["skipped"], serde_json::json!([]));
}

#[test]
fn a_row_can_be_run_again_from_what_it_prints() {
    let Some(fakes) = fakes() else { return };
    let arguments =
        format!("bench --kernel cublas_bf16,tiled_16,cpu --shape 9x8x7 {QUICK} --json -");
    let sweep = json(on_fake(fakes, &[], &arguments), 0);
    for row in sweep["rows"].as_array().unwrap() {
        let again = row["again"]
            .as_str()
            .unwrap()
            .strip_prefix("matmul ")
            .unwrap();
        let second = json(on_fake(fakes, &[], &format!("{again} --json -")), 0);
        let rows = second["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{second:#}");
        for part in [
            "kernel",
            "backend",
            "precision",
            "device",
            "m",
            "n",
            "k",
            "again",
        ] {
            assert_eq!(rows[0][part], row[part]);
        }
        assert_eq!(second["method"], sweep["method"]);
    }
}

#[test]
fn a_wrong_result_is_not_timed() {
    let Some(fakes) = fakes() else { return };
    let arguments = format!("bench --shape 20x30x40 {QUICK} --json -");
    let off = [("FAKE_CUBLAS_OFF", "40")];
    let sweep = json(on_fake(fakes, &off, &arguments), 1);
    for row in sweep["rows"].as_array().unwrap() {
        let wrong = row["backend"] == "cublas";
        assert_eq!(row["passed"], !wrong, "{row:#}");
        assert_eq!(row["sustained"].is_null(), wrong);
        if wrong {
            let verdict = row["verdict"].as_str().unwrap();
            assert!(
                verdict.contains("1 wrong element, the first C[0, 0]"),
                "{verdict}"
            );
        }
    }
    let sweep = json(on_fake(fakes, &[("FAKE_KERNEL", "wrong")], &arguments), 1);
    assert_eq!(rows(&sweep, "tiled_16")[0]["passed"], false);
    assert_eq!(rows(&sweep, "cublas_f32")[0]["passed"], true);
}

#[test]
fn an_absent_cublas_is_named() {
    let Some(fakes) = fakes() else { return };
    let arguments = format!("bench --kernel tiled_16,cublas_* --shape 8 {QUICK}");
    let absent = [("MATMUL_CUBLAS", "/no/such/libcublas.so")];
    let (code, printed, said) = outcome(on_fake(fakes, &absent, &arguments));
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("tiled_16") && !printed.contains("cublas_f32"),
        "{printed}"
    );
    assert!(
        said.contains("/no/such/libcublas.so: there is no such library"),
        "{said}"
    );
    // The flag goes before the variable; this file is no library.
    let file = folder("cublas").join("no_library.so");
    fs::write(&file, "not a library\n").unwrap();
    let arguments = format!("{arguments} --cublas {}", file.display());
    let (_, _, said) = outcome(on_fake(fakes, &[], &arguments));
    assert!(
        said.contains("cuBLAS cannot be used") && said.contains("no_library.so"),
        "{said}"
    );
    // It is there, and refuses.
    let arguments = format!("bench --kernel cublas_f16 --shape 8 {QUICK}");
    let (code, _, said) = outcome(on_fake(fakes, &[("FAKE_CUBLAS", "13")], &arguments));
    assert_eq!(code, 1);
    assert!(
        said.contains("CUBLAS_STATUS_EXECUTION_FAILED (13)"),
        "{said}"
    );
    assert!(said.contains("nothing was measured"), "{said}");
}

#[test]
fn throttling_is_warned_of() {
    let Some(fakes) = fakes() else { return };
    let arguments = format!("bench --kernel tiled_16 --shape 8 {QUICK}");
    let capped = [("FAKE_NVML_THROTTLE", "4")];
    let (code, printed, said) = outcome(on_fake(fakes, &capped, &arguments));
    assert_eq!(code, 0);
    assert!(
        said.contains("throttled by power cap: tiled_16 at 8×8×8"),
        "{said}"
    );
    assert!(printed.contains("driver 999.88.77"), "{printed}");
    let other = [("FAKE_NVML_UUID", "GPU-other")];
    let (code, printed, said) = outcome(on_fake(fakes, &other, &arguments));
    assert_eq!(code, 0);
    assert!(
        said.contains("clocks, power and throttling of device 0 were not read"),
        "{said}"
    );
    assert!(printed.contains("driver for CUDA 12.8"), "{printed}");
}

#[test]
fn files_hold_what_was_measured() {
    let Some(fakes) = fakes() else { return };
    let folder = folder("files").join(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let page = "before\n<!-- begin: matmul bench -->\nold\n<!-- end: matmul bench -->\nafter\n";
    fs::write(path("page.md"), page).unwrap();
    let arguments = format!(
        "bench --kernel tiled_*,naive_16,cublas_* --shape 16,32 {QUICK} --tag a=1 --json {} --csv {} \
         --write {} --plot {}",
        path("sweep.json"),
        path("rows.csv"),
        path("page.md"),
        path("pictures")
    );
    let (code, printed, said) = outcome(on_fake(fakes, &[], &arguments));
    assert_eq!(code, 0, "{said}");
    let page = fs::read_to_string(path("page.md")).unwrap();
    assert!(
        page.starts_with("before\n<!-- begin") && page.ends_with("-->\nafter\n"),
        "{page}"
    );
    assert!(
        page.contains("| `tiled_32` |") && !page.contains("old"),
        "{page}"
    );
    for name in ["roofline", "ladder", "sizes"] {
        for end in [".svg", ".png", "-dark.svg", "-dark.png"] {
            assert!(
                fs::metadata(path(&format!("pictures/{name}{end}")))
                    .unwrap()
                    .len()
                    > 1000
            );
        }
    }
    // The same from the file, on a machine without a GPU.
    let arguments = format!("bench --from {}", path("sweep.json"));
    assert_eq!(outcome(without_gpu(&arguments)).1, printed);
    let arguments = format!("{arguments} --csv {} --markdown", path("rows.csv"));
    let (_, printed, _) = outcome(without_gpu(&arguments));
    assert!(printed.starts_with("| kernel | shape |"), "{printed}");
    let arguments = format!("bench --from {} --markdown", path("sweep.json"));
    let some = format!("{arguments} --kernel tiled_* --shape 32");
    assert_eq!(outcome(without_gpu(&some)).1.lines().count(), 2 + 2);
    let (code, _, said) = outcome(without_gpu(&format!("{arguments} --shape 33")));
    assert!(code == 2 && said.contains("no row"), "{said}");
    let csv = fs::read_to_string(path("rows.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * 14, "{csv}");
    assert!(
        csv.lines()
            .all(|line| line.starts_with("started,") || line.contains(",a=1,"))
    );
    fs::remove_dir_all(&folder).unwrap();
}

/// The cells of a Markdown table's row that begins with this one.
#[track_caller]
fn cells<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let line = table
        .lines()
        .find(|line| line.starts_with(&format!("| {first} |")))
        .unwrap_or_else(|| panic!("no row {first} in:\n{table}"));
    let line = line.trim_start_matches("| ").trim_end_matches(" |");
    line.split(" | ").collect()
}

#[test]
fn the_table_shows_cublas_registers_and_what_changed() {
    let Some(fakes) = fakes() else { return };
    let folder = folder("table").join(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let page = "before\n<!-- begin: matmul table -->\nold\n<!-- end: matmul table -->\nafter\n";
    fs::write(path("page.md"), page).unwrap();
    let arguments = format!(
        "table --sizes 16,32 --rounds 2 --write {} --json {} --chart {}",
        path("page.md"),
        path("table.json"),
        path("chart.svg")
    );
    let (code, printed, said) = outcome(on_fake(fakes, &[], &arguments));
    assert_eq!(code, 0, "{said}");
    let heading = cells(&printed, "kernel");
    let expected = [
        "kernel",
        "16×16×16",
        "32×32×32",
        "× cuBLAS",
        "registers",
        "shared memory",
        "occupancy",
        "what changed",
    ];
    assert_eq!(heading, expected);
    // The fake's products all take 100 ms. It has 40 registers and 2 KiB for each
    // kernel, and room for 1,024 threads.
    let tiled = cells(&printed, "`tiled_16`");
    let summary = kernels::gemm::find("tiled_16").unwrap().summary;
    let expected = ["1.00", "40", "2.0 KiB", "50 % (4×8 warps)", summary];
    assert_eq!(tiled[3..], expected, "{printed}");
    for variant in kernels::gemm::all() {
        assert_eq!(cells(&printed, &format!("`{}`", variant.name))[3], "1.00");
    }
    assert_eq!(cells(&printed, "`cublas_f32`")[3], "");
    assert!(!printed.contains("cublas_tf32"), "{printed}");
    let written = fs::read_to_string(path("page.md")).unwrap();
    assert_eq!(written, page.replace("old\n", &printed));
    for chart in ["chart.svg", "chart-dark.svg"] {
        let chart = fs::read_to_string(path(chart)).unwrap();
        assert!(chart.contains("32×32×32") && chart.contains("cublas_f32"));
    }

    // The same from the file, without a GPU; and what the file has not.
    let from = format!("table --from {}", path("table.json"));
    let (code, again, _) = outcome(without_gpu(&format!("{from} --sizes 16,32")));
    assert_eq!((code, &again), (0, &printed));
    let (code, one, _) = outcome(without_gpu(&format!("{from} --sizes 16")));
    assert_eq!((code, cells(&one, "kernel").len()), (0, 7));
    let (code, _, said) = outcome(without_gpu(&format!("{from} --sizes 16,64")));
    assert!(
        code == 2 && said.contains("64×64×64") && said.contains("--sizes"),
        "{said}"
    );
    let (code, _, said) = outcome(without_gpu(&format!("{from} --rounds 3")));
    assert!(code == 2 && said.contains("cannot be used with"), "{said}");
    // `bench` shows it too.
    let (code, rows, _) = outcome(without_gpu(&format!(
        "bench --from {} --markdown",
        path("table.json")
    )));
    assert!(
        code == 0 && rows.contains("| cublas_f32 | 32×32×32 |"),
        "{rows}"
    );

    // Without cuBLAS, without a GPU, with wrong results.
    let absent = [("MATMUL_CUBLAS", "/no/such/libcublas.so")];
    let arguments = "table --sizes 16 --rounds 1";
    let (code, printed, said) = outcome(on_fake(fakes, &absent, arguments));
    assert_eq!(code, 0);
    assert!(
        !printed.contains("× cuBLAS") && printed.contains("cuBLAS was not there"),
        "{printed}"
    );
    assert!(!printed.contains("/no/such"), "{printed}");
    assert!(said.contains("/no/such/libcublas.so"), "{said}");
    let named = format!("{arguments} --cublas {}", fakes.cublas.display());
    let (_, printed, _) = outcome(on_fake(fakes, &absent, &named));
    assert!(printed.contains("× cuBLAS"), "{printed}");
    let (code, printed, said) = outcome(without_gpu(arguments));
    assert_eq!((code, printed.as_str()), (1, ""), "{said}");
    assert!(said.contains("no CUDA driver"), "{said}");
    fs::write(path("page.md"), page).unwrap();
    let arguments = format!("{arguments} --write {}", path("page.md"));
    let wrong = [("FAKE_KERNEL", "wrong")];
    let (code, printed, said) = outcome(on_fake(fakes, &wrong, &arguments));
    assert_eq!((code, printed.as_str()), (1, ""));
    assert!(said.contains("tiled_16 at 16×16×16: FAIL"), "{said}");
    assert_eq!(fs::read_to_string(path("page.md")).unwrap(), page);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kernels_stand_beside_cublas_with_code_for_another_target() {
    let Some(fakes) = fakes() else { return };
    let folder = folder("by_shape").join(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let markers = [
        "<!-- begin: matmul bench --by-shape -->\n",
        "<!-- end: matmul bench --by-shape -->\n",
    ];
    // A page may hold both tables.
    let page = format!(
        "<!-- begin: matmul bench -->\nsummary\n<!-- end: matmul bench -->\n{}old\n{}",
        markers[0], markers[1]
    );
    fs::write(path("page.md"), &page).unwrap();
    let arguments = format!(
        "bench --kernel auto,tma,cublas_f32 --shape 16x24x8,1x40x40 {QUICK} --code best,sm_80 \
         --by-shape --write {} --json {}",
        path("page.md"),
        path("sweep.json")
    );
    let (code, printed, said) = outcome(on_fake(fakes, &[], &arguments));
    assert_eq!(code, 0, "{said}");
    let expected = [
        "M×N×K",
        "cuBLAS, TFLOP/s",
        "`tma`, TFLOP/s",
        "ratio",
        "memory",
        "`auto`, TFLOP/s",
        "ratio",
        "memory",
        "`auto/sm_80`, TFLOP/s",
        "ratio",
        "memory",
    ];
    assert_eq!(cells(&printed, "M×N×K"), expected);
    for shape in ["16×24×8", "1×40×40"] {
        let row = cells(&printed, shape);
        assert_eq!([row[3], row[6], row[9]], ["1.00"; 3], "{printed}");
        // 3,072 FLOPs for 2.8 KB are few as well.
        assert!(row[10].ends_with(" GB/s (0 %)"), "{printed}");
    }
    let written = fs::read_to_string(path("page.md")).unwrap();
    assert_eq!(written, page.replace("old\n", &printed));
    // Hopper's copy engine is beyond that code, and cuBLAS is measured once.
    assert!(
        said.contains("skipped: tma at 16×24×8: tma needs"),
        "{said}"
    );
    let sweep: Value =
        serde_json::from_str(&fs::read_to_string(path("sweep.json")).unwrap()).unwrap();
    assert_eq!(sweep["devices"][0]["ptx"], "sm_90a, sm_80");
    let codes: Vec<_> = rows(&sweep, "auto")
        .iter()
        .map(|row| &row["code"])
        .collect();
    assert_eq!(
        codes,
        [&Value::Null, &"sm_80".into(), &Value::Null, &"sm_80".into()]
    );
    assert_eq!(rows(&sweep, "cublas_f32").len(), 2);
    let other = rows(&sweep, "auto")[1];
    let again = other["again"].as_str().unwrap();
    let again = again.strip_prefix("matmul ").unwrap();
    let second = json(on_fake(fakes, &[], &format!("{again} --json -")), 0);
    assert_eq!(second["rows"].as_array().unwrap().len(), 1);
    assert_eq!(second["rows"][0]["code"], "sm_80");
    // The same from the file, and nothing differs.
    let from = format!("bench --from {} --by-shape", path("sweep.json"));
    assert_eq!(outcome(without_gpu(&from)).1, printed);
    let sweep = path("sweep.json");
    let (code, compared, _) = outcome(command(&format!("compare {sweep} {sweep}")));
    assert!(
        code == 0 && compared.starts_with("time: 8 the same, 0 faster"),
        "{compared}"
    );

    // What two names choose alike is measured once.
    let arguments = format!("bench --kernel auto --shape 8 {QUICK} --code sm_90a,best --json -");
    let sweep = json(on_fake(fakes, &[], &arguments), 0);
    assert_eq!(rows(&sweep, "auto").len(), 1);
    assert_eq!(rows(&sweep, "auto")[0]["code"], Value::Null);
    // A failing kernel of the second module is named all the same.
    let failing = [("FAKE_SYNC", "700")];
    let arguments = format!("bench --kernel tiled_16 --shape 8 {QUICK} --code sm_75");
    let (code, _, said) = outcome(on_fake(fakes, &failing, &arguments));
    assert!(code == 1 && said.contains("gemm_tiled_16"), "{said}");
    // `run` takes it as well.
    let (code, printed, _) = outcome(on_fake(
        fakes,
        &[],
        "run --kernel tiled_16 --code best,sm_80",
    ));
    assert_eq!(code, 0);
    assert!(
        printed.contains("tiled_16/sm_90a ") && printed.contains("tiled_16/sm_80 "),
        "{printed}"
    );
    for (code, part) in [("sm_12", "sm_75, sm_80, sm_90a"), ("", "`best`")] {
        let arguments = format!("bench --kernel auto --shape 8 --code={code}");
        let (found, _, said) = outcome(on_fake(fakes, &[], &arguments));
        assert!(found == 2 && said.contains(part), "{said}");
    }
    let old = [("FAKE_CC", "75")];
    let arguments = "bench --kernel auto --shape 8 --code sm_80";
    let (code, _, said) = outcome(on_fake(fakes, &old, arguments));
    assert_eq!(code, 2);
    assert!(
        said.contains("compute capability 7.5) does not run code for sm_80")
            && said.contains("it runs sm_75"),
        "{said}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_device_has_its_rows() {
    let Some(fakes) = fakes() else { return };
    let two = [("FAKE_DEVICES", "2")];
    let arguments = format!("bench --kernel tiled_16,cublas_f32,cpu --shape 16 {QUICK}");
    for devices in ["0,1", "all", "0,1,0"] {
        let arguments = format!("{arguments} --device {devices} --json -");
        let sweep = json(on_fake(fakes, &two, &arguments), 0);
        let ordinals = sweep["devices"].as_array().unwrap().iter();
        let ordinals: Vec<_> = ordinals.map(|it| it["ordinal"].as_u64().unwrap()).collect();
        assert_eq!(ordinals, [0, 1]);
        for kernel in ["tiled_16", "cublas_f32"] {
            let rows = rows(&sweep, kernel);
            let devices: Vec<_> = rows.iter().map(|row| row["device"].as_u64()).collect();
            assert_eq!(devices, [Some(0), Some(1)], "{kernel}");
            let again = rows[1]["again"].as_str().unwrap();
            assert!(again.contains(" --device 1"), "{again}");
        }
        assert_eq!(rows(&sweep, "cpu").len(), 1);
    }
    let (code, printed, said) = outcome(on_fake(fakes, &two, &format!("{arguments} --device 1,0")));
    assert_eq!(code, 0);
    assert!(printed.contains("Fake GPU B (device 1,"), "{printed}");
    assert!(
        printed.contains("tiled_16         1  16×16×16"),
        "{printed}"
    );
    assert!(
        printed.contains("tiled_16         0  16×16×16"),
        "{printed}"
    );
    // The fake NVML knows the first alone.
    assert!(said.contains("of device 1 were not read"), "{said}");
    let (_, printed, _) = outcome(on_fake(
        fakes,
        &two,
        &format!("{arguments} --device 1,0 --markdown"),
    ));
    assert!(printed.contains("| tiled_16 | 1 | 16×16×16 |"), "{printed}");
    let (_, printed, _) = outcome(on_fake(
        fakes,
        &two,
        &format!("{arguments} --device 1,0 --by-shape"),
    ));
    let (first, second) = printed.split_once("Device 0, Fake GPU A:").unwrap();
    assert!(first.starts_with("Device 1, Fake GPU B:"), "{printed}");
    for table in [first, second] {
        assert_eq!(cells(table, "16×16×16")[3], "1.00", "{printed}");
    }
    // A second that is too old is left out; alone, it is an error.
    let old = [("FAKE_DEVICES", "2"), ("FAKE_OLD_DEVICE", "1")];
    let all = format!("{arguments} --device all --json -");
    let sweep = json(on_fake(fakes, &old, &all), 0);
    assert_eq!(rows(&sweep, "tiled_16").len(), 1);
    assert_eq!(sweep["skipped"][0]["shape"], "every shape on device 1");
    let reason = sweep["skipped"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("compute capability 5.2"), "{reason}");
    let (code, _, said) = outcome(on_fake(fakes, &old, &format!("{arguments} --device 1")));
    assert!(code == 1 && said.contains("Fake GPU B"), "{said}");
}

#[test]
fn short_products_are_launched_in_graphs() {
    let Some(fakes) = fakes() else { return };
    let arguments =
        "bench --kernel tiled_16,stream_k,cublas_[fb]* --shape 16 --rounds 1 --pause 0 --json -";
    let batched = |settings: &[(&str, &str)], more: &str| {
        let sweep = json(
            on_fake(
                fakes,
                settings,
                &format!("{arguments} --sustained 1 {more}"),
            ),
            0,
        );
        let rows = sweep["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 5, "{sweep:#}");
        let by: Vec<_> = rows
            .iter()
            .map(|row| row["batched_by"].as_str().unwrap())
            .collect();
        assert!(by.iter().all(|it| *it == by[0]), "{by:?}");
        (by[0].to_owned(), sweep)
    };
    // A batch of one product takes as long as one of 20 here, a twentieth of which is
    // what a short one takes.
    let long: &[(&str, &str)] = &[("FAKE_ELAPSED", "400000")];
    let short: &[(&str, &str)] = &[("FAKE_ELAPSED", "100")];
    assert_eq!(batched(long, "").0, "launches");
    assert_eq!(batched(short, "--graphs off").0, "launches");
    assert_eq!(batched(long, "--graphs on").0, "graph");
    let (by, sweep) = batched(short, "");
    assert_eq!(by, "graph");
    assert_eq!(sweep["warnings"], serde_json::json!([]), "{sweep:#}");
    for row in sweep["rows"].as_array().unwrap() {
        assert_eq!(row["no_graph"], Value::Null);
        // 5 µs a product, 1 ms a batch: one graph of 200, which took 100 µs.
        let sustained = &row["sustained"];
        assert_eq!(sustained["launches"], 200, "{row:#}");
        let seconds = sustained["seconds"][0].as_f64().unwrap();
        assert!((seconds / 5e-7 - 1.0).abs() < 1e-3, "{row:#}");
        let again = row["again"].as_str().unwrap();
        assert!(again.ends_with(" --graphs on"), "{again}");
    }
    // Several graphs make a batch.
    let sweep = json(
        on_fake(fakes, short, &format!("{arguments} --sustained 4")),
        0,
    );
    let sustained = &rows(&sweep, "cublas_f32")[0]["sustained"];
    assert_eq!(sustained["launches"], 800, "{sustained}");
    let seconds = sustained["seconds"][0].as_f64().unwrap();
    assert!((seconds / 5e-7 - 1.0).abs() < 1e-3, "{sustained}");

    // Drivers that refuse, and say so at different points.
    for (name, code, part) in [
        (
            "FAKE_CAPTURE",
            "801",
            "capturing launches in a graph: the driver said CUDA error 801",
        ),
        (
            "FAKE_GRAPH",
            "500",
            "making a graph of launches: the driver said CUDA_ERROR_NOT_FOUND (500)",
        ),
        ("MATMUL_SYNC", "1", "MATMUL_SYNC=1 waits for each launch"),
    ] {
        let refusing = [short[0], (name, code)];
        for more in ["", "--graphs on"] {
            let (by, sweep) = batched(&refusing, more);
            assert_eq!(by, "launches", "{name}");
            let warning = sweep["warnings"][0].as_str().unwrap();
            assert!(
                warning
                    .starts_with("launched one by one in place of a graph: tiled_16 at 16×16×16")
                    && warning.contains(part),
                "{warning}"
            );
            let reason = rows(&sweep, "cublas_f32")[0]["no_graph"].as_str().unwrap();
            assert!(
                reason.starts_with("tiled_16: ") && reason.contains(part),
                "{reason}"
            );
        }
    }
    // Where cuBLAS cannot, the kernels are launched one by one too.
    let refusing = [short[0], ("FAKE_CUBLAS_WORKSPACE", "3")];
    let (by, sweep) = batched(&refusing, "");
    assert_eq!(by, "launches");
    let reason = rows(&sweep, "tiled_16")[0]["no_graph"].as_str().unwrap();
    assert_eq!(
        reason,
        "cublas_f32: cublasSetWorkspace_v2 said CUBLAS_STATUS_ALLOC_FAILED (3)"
    );
    // A kernel that fails is no refusal.
    let failing = [short[0], ("FAKE_SYNC", "700")];
    let (code, _, said) = outcome(on_fake(
        fakes,
        &failing,
        &format!("{arguments} --graphs on"),
    ));
    assert!(
        code == 1 && said.contains("CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{said}"
    );

    // `run`, and the table.
    let one = "run --kernel tiled_16 --m 16 --n 16 --k 16 --iterations 300";
    for (more, by) in [("", "graph"), (" --graphs off", "launches")] {
        let (code, printed, _) = outcome(on_fake(fakes, short, &format!("{one}{more}")));
        assert_eq!(code, 0);
        let graph = printed.contains("mean of 300 launches in a CUDA graph between two events");
        assert_eq!(graph, by == "graph", "{printed}");
        let result = json(on_fake(fakes, short, &format!("{one}{more} --json")), 0);
        assert_eq!(result["results"][0]["batched_by"], by);
    }
    let (code, table, said) = outcome(on_fake(fakes, short, "table --sizes 16 --rounds 1"));
    assert_eq!(code, 0, "{said}");
    assert_eq!(cells(&table, "`auto`")[2], "1.00", "{table}");
    for command in ["bench", "run", "table"] {
        let (code, _, said) = outcome(on_fake(fakes, &[], &format!("{command} --graphs maybe")));
        assert!(code == 2 && said.contains("on, off or auto"), "{said}");
    }
}

#[test]
fn sweeps_are_compared() {
    let Some(fakes) = fakes() else { return };
    let folder = folder("compare").join(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    let base = folder.join("base.json").display().to_string();
    let arguments = format!("bench --kernel tiled_*,cublas_f32 --shape 16 {QUICK} --json {base}");
    assert_eq!(outcome(on_fake(fakes, &[], &arguments)).0, 0);

    let (code, printed, _) = outcome(command(&format!("compare {base} {base}")));
    assert_eq!(code, 0);
    assert_eq!(
        printed,
        "time: 3 the same, 0 faster, 0 slower, 0 wrong now, 0 gone, 0 new: PASS\n"
    );

    let mut sweep: Value = serde_json::from_str(&fs::read_to_string(&base).unwrap()).unwrap();
    sweep["rows"][0]["sustained"]["seconds"] = serde_json::json!([0.11, 0.11, 0.11]);
    let new = folder.join("new.json").display().to_string();
    fs::write(&new, sweep.to_string()).unwrap();
    let (code, printed, _) = outcome(command(&format!("compare {base} {new}")));
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("+10.0 %") && printed.contains("slower, past the limit"),
        "{printed}"
    );
    for (arguments, code) in [
        ("--limit 12", 0),
        ("--least 12", 0),
        ("--figure cold", 0),
        ("--json", 1),
    ] {
        assert_eq!(
            outcome(command(&format!("compare {base} {new} {arguments}"))).0,
            code
        );
    }
    // The other way round it got faster.
    let (code, printed, _) = outcome(command(&format!("compare {new} {base}")));
    assert_eq!(code, 0);
    assert!(printed.contains("1 faster"), "{printed}");

    fs::write(&new, "{}").unwrap();
    let (code, _, said) = outcome(command(&format!("compare {base} {new}")));
    assert_eq!(code, 1);
    assert!(said.contains("new.json: it is no sweep"), "{said}");
    fs::write(&new, "{\"format\": 99}").unwrap();
    let (_, _, said) = outcome(command(&format!("compare {base} {new}")));
    assert!(said.contains("format 99"), "{said}");
    let (code, _, said) = outcome(command(&format!("compare {base} /no/such.json")));
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn without_a_gpu_the_cpu_is_measured() {
    let (code, printed, said) = outcome(without_gpu("bench --shape 16x8x24 --rounds 2"));
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains("cpu_gemm  16×8×24"), "{printed}");
    assert!(
        said.contains("skipped: every kernel on the GPU") && said.contains("no CUDA driver"),
        "{said}"
    );
    // Not a progress bar's control codes: this is no terminal.
    assert!(!said.contains('\u{1b}'), "{said}");

    let (code, _, said) = outcome(without_gpu("bench --kernel tiled_16 --shape 16"));
    assert_eq!(code, 1);
    assert!(said.contains("nothing was measured"), "{said}");
    let (code, _, said) = outcome(without_gpu("bench --kernel cpu --shape 4096 --rounds 1"));
    assert_eq!(code, 1);
    assert!(said.contains("it would take the CPU long"), "{said}");
    assert_eq!(
        outcome(without_gpu("bench --run-once --kernel tiled_16 --shape 16")).0,
        1
    );

    let dry = "bench --dry-run --preset squares,ragged,llm,deepbench,off-by-8 --m 64:256:*2";
    let (code, printed, said) = outcome(without_gpu(dry));
    assert_eq!((code, said.as_str()), (0, ""));
    for part in [
        "8192×8192×8192",
        "4096×28672×4096",
        "512×8×500000",
        "4088×4088×4088",
        "128×128×128",
    ] {
        assert!(printed.contains(part), "{part}");
    }
    assert!(printed.contains("16.43 ms"), "{printed}");
}

#[test]
fn a_profiler_sees_one_launch() {
    let Some(fakes) = fakes() else { return };
    let arguments = "bench --run-once --kernel tiled_16,cublas_tf32 --shape 8,20x30x40";
    let (code, printed, said) = outcome(on_fake(fakes, &[], arguments));
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(
        printed,
        "tiled_16 at 8×8×8\ncublas_tf32 at 8×8×8\ntiled_16 at 20×30×40\ncublas_tf32 at 20×30×40\n"
    );
}

#[test]
fn counters_stand_beside_the_simulators() {
    let Some(fakes) = fakes() else { return };
    let tools = folder("tools");
    let ncu = |name: &str, script: &str| {
        let path = tools.join(name);
        // By another process: a file that this one holds open for writing can
        // stay so in a child that another test is starting, and would not run.
        let written = std::process::Command::new("sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1""#,
                "sh",
            ])
            .args([path.to_str().unwrap(), script])
            .status();
        assert!(written.unwrap().success());
        path.display().to_string()
    };
    let reads = ncu(
        "reads",
        r#"echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
           echo '"0","k","smsp__inst_executed_op_shared_st.sum","","4,096"'
           echo '"0","k","smsp__inst_executed_op_shared_ld.sum","","1"'"#,
    );
    let refuses = ncu(
        "refuses",
        "echo '==ERROR== ERR_NVGPUCTRPERM: no permission'; exit 1",
    );
    let arguments = "profile --kernel tiled_16 --m 64 --n 128 --k 128";
    let (code, printed, said) = outcome(on_fake(fakes, &[("NCU", &reads)], arguments));
    assert_eq!((code, said.as_str()), (0, ""));
    // 4 × 8 blocks of 8 warps, 8 steps, two stores each.
    let line = printed
        .lines()
        .find(|line| line.starts_with("smsp__inst_executed_op_shared_st"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[1..], ["4096", "4096", "equal"], "{printed}");
    assert!(
        printed.contains("ncu --clock-control none --set full"),
        "{printed}"
    );

    let (code, printed, _) = outcome(on_fake(fakes, &[("NCU", &refuses)], arguments));
    assert_eq!(code, 0);
    assert!(
        printed.contains("Not read: ") && printed.contains("run as root"),
        "{printed}"
    );
    let (code, printed, _) = outcome(without_gpu(&format!("{arguments} --print")));
    assert!(code == 0 && printed.contains("nsys profile"), "{printed}");
    assert_eq!(outcome(command("profile --kernel nosuch --print")).0, 2);
    let (code, _, said) = outcome(on_fake(
        fakes,
        &[("NCU", &reads)],
        &format!("{arguments} --device 3"),
    ));
    assert!(code == 2 && said.contains("no device 3"), "{said}");
}

#[test]
fn wrong_requests_end_with_2() {
    for (arguments, part) in [
        ("bench --kernel tilde*", "tiled_16"),
        ("bench --kernel [", "pattern"),
        ("bench --shape 3x4", "3x4"),
        ("bench --shape 4294967296", "too large"),
        ("bench --preset cubes", "deepbench"),
        ("bench --m 1:2", "START:STOP:STEP"),
        ("bench --m 8 --n 8", "--k"),
        ("bench --m 8:1:1", "before it starts"),
        ("bench --rounds 0", "--rounds"),
        ("bench --sustained -1", "-1"),
        ("bench --sustained nan", "milliseconds"),
        ("bench --noise-limit x", "--noise-limit"),
        ("bench --tag novalue", "KEY=VALUE"),
        ("bench --device x", "--device"),
        ("bench --from a.json --rounds 3", "cannot be used with"),
        ("bench --dry-run --gpu nosuch", "h200"),
        ("compare a.json", "NEW.json"),
        ("compare a.json b.json --figure warm", "sustained"),
        ("compare a.json b.json --limit -1", "-1"),
    ] {
        let (code, printed, said) = outcome(command(arguments));
        assert_eq!(
            (code, printed.as_str()),
            (2, ""),
            "matmul {arguments}: {said}"
        );
        assert!(said.contains(part), "matmul {arguments}: {said}");
    }
    // Known before anything is measured.
    let (code, _, said) = outcome(command(
        "bench --kernel cpu --shape 8 --write /no/such/page.md",
    ));
    assert!(
        code == 1 && said.starts_with("error: /no/such/page.md"),
        "{said}"
    );
    let (code, _, said) = outcome(command("bench --from /no/such.json"));
    assert!(
        code == 1 && said.starts_with("error: /no/such.json"),
        "{said}"
    );
    if let Some(fakes) = fakes() {
        let (code, _, said) = outcome(on_fake(fakes, &[], "bench --shape 8 --device 7"));
        assert!(code == 2 && said.contains("no device 7"), "{said}");
    }
}

/// Every schedule and cuBLAS are verified before they are timed.
#[test]
fn tune_compares_the_schedules_of_a_shape() {
    let Some(fakes) = fakes() else { return };
    let tune = "tune --best 99 --shape 20x132x40";
    let (code, printed, _) = outcome(on_fake(fakes, &[], tune));
    assert_eq!(code, 0, "{printed}");
    for part in [
        "20×132×40",
        "  chosen",
        "gemm_split_k_",
        "cuBLAS",
        "streamed",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(!printed.contains("WRONG"), "{printed}");

    let wrong_lines = |settings: &[(&str, &str)]| {
        let (code, printed, _) = outcome(on_fake(fakes, settings, tune));
        assert_eq!(code, 1, "{printed}");
        let lines = printed.lines().filter(|line| line.ends_with("WRONG"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let library = wrong_lines(&[("FAKE_CUBLAS_OFF", "40")]);
    assert_eq!(library.len(), 1, "{library:?}");
    assert!(library[0].contains("cuBLAS"), "{library:?}");
    let kernels = wrong_lines(&[("FAKE_KERNEL", "wrong")]);
    assert!(
        kernels.iter().all(|line| line.contains("gemm_")),
        "{kernels:?}"
    );
    assert!(kernels.len() > 5, "{kernels:?}");

    let (code, _, said) = outcome(on_fake(fakes, &[], "tune --shape 0x30x40"));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("C has no element"), "{said}");
}
