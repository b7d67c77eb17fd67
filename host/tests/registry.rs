//! The table of variants, the kernels' files and the PTX agree.

use host::ptx;
use kernels::gemm::{self, Shape};
use kernels::launch::{Backend, ComputeCapability, DeviceLimits, Entry, PlanError, Target};
use std::collections::BTreeSet;
use std::path::Path;

const LIMITS: DeviceLimits = DeviceLimits {
    compute_capability: ComputeCapability::new(9, 0),
    code: Target::parse("sm_90a"),
    multiprocessors: 132,
    max_threads_per_block: 1024,
    max_shared_bytes_per_block: 232_448,
    active_clusters: Vec::new(),
};

fn shape(m: u64, n: u64, k: u64) -> Shape {
    Shape::new(m, n, k).unwrap()
}

/// The kernels that code by a backend for a target has.
fn entries_for(ptx: ptx::Ptx) -> Vec<&'static Entry> {
    ptx::kernels_of(ptx.backend)
        .filter(|entry| ptx.target().has(entry.needs))
        .collect()
}

#[test]
fn every_file_of_variants_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/src/gemm");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["mod.rs", "schedule.rs"].contains(&name.as_str()))
        .collect();
    let in_table: BTreeSet<String> = gemm::all()
        .map(|variant| {
            let name = Path::new(variant.source).file_name().unwrap();
            name.to_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(files, in_table);
}

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<_> = gemm::all().map(|variant| variant.name).collect();
    assert_eq!(names.len(), gemm::all().count());
    for variant in gemm::all() {
        assert!(std::ptr::eq(gemm::find(variant.name).unwrap(), variant));
    }
    assert!(gemm::find("no such variant").is_none());
}

#[test]
fn the_ptx_holds_the_kernels_and_no_others() {
    for ptx in ptx::all() {
        let in_ptx: BTreeSet<_> = ptx.entries().collect();
        let backend = ptx.backend;
        let declared: BTreeSet<_> = entries_for(ptx).iter().map(|entry| entry.name).collect();
        // A file from elsewhere may hold more; see `ptx_builder::foreign`.
        match backend {
            Backend::Nvptx => assert_eq!(in_ptx, declared, "{}", ptx.architecture),
            Backend::RustCuda => assert!(in_ptx.is_superset(&declared), "{in_ptx:?}"),
        }
    }
    let names = kernels::entries().len();
    let unique: BTreeSet<_> = kernels::entries().iter().map(|entry| entry.name).collect();
    assert_eq!(unique.len(), names, "two kernels share a name");
}

#[test]
fn launch_bounds_and_shared_memory_reach_the_ptx() {
    for ptx in ptx::all() {
        for entry in entries_for(ptx) {
            let start = ptx.text.find(&format!(".entry {}(", entry.name)).unwrap();
            let rest = &ptx.text[start..];
            let body = &rest[..rest.find("\n}").unwrap()];
            let bound = format!(".maxntid {}", entry.launch_bounds.max_threads);
            assert!(body.contains(&bound), "{} lacks {bound}", entry.name);
            if ptx.backend != Backend::Nvptx {
                // Its arrays are statics outside the kernels.
                continue;
            }
            // Each array is declared once, inside its kernel, under its own
            // name: two of one size stay two.
            let arrays: Vec<_> = body
                .lines()
                .filter_map(|line| line.trim().strip_prefix(".shared "))
                .map(|line| line.rsplit(' ').next().unwrap())
                .collect();
            let unique: BTreeSet<_> = arrays.iter().collect();
            assert_eq!(unique.len(), arrays.len(), "{}", entry.name);
            let bytes: u32 = arrays
                .iter()
                .map(|array| {
                    let length = array.split_once('[').unwrap().1;
                    length.trim_end_matches("];").parse::<u32>().unwrap()
                })
                .sum();
            assert_eq!(bytes, entry.static_shared_bytes, "{}", entry.name);
        }
    }
}

#[test]
fn plans_name_their_kernels_and_fit_the_device() {
    for variant in gemm::all() {
        for (m, n, k) in [(1, 1, 1), (256, 128, 64), (128, 256, 64), (1, 100_000, 3)] {
            let plan = variant.plan(shape(m, n, k), &LIMITS).unwrap();
            assert!(!plan.launches.is_empty(), "{}", variant.name);
            for launch in &plan.launches {
                assert!(
                    variant
                        .entries
                        .iter()
                        .any(|entry| std::ptr::eq(*entry, launch.entry())),
                    "{} launches {}, which it does not name",
                    variant.name,
                    launch.entry().name
                );
                let threads = launch.block().count();
                assert!(threads >= 1 && threads <= launch.entry().launch_bounds.max_threads.into());
                assert_eq!(launch.arguments().len(), launch.entry().parameters.len());
            }
        }
    }
}

#[test]
fn an_empty_result_launches_nothing() {
    for variant in gemm::all() {
        for (m, n, k) in [(0, 5, 7), (5, 0, 7), (0, 0, 0)] {
            let plan = variant.plan(shape(m, n, k), &LIMITS).unwrap();
            assert!(plan.launches.is_empty(), "{}", variant.name);
        }
        let k_zero = variant.plan(shape(5, 7, 0), &LIMITS).unwrap();
        assert!(
            !k_zero.launches.is_empty(),
            "{} must write zeros",
            variant.name
        );
    }
}

#[test]
fn plans_are_computed_in_64_bits() {
    for variant in gemm::all() {
        // 2^31 elements of C, and a matrix whose rows outnumber the blocks of
        // one axis.
        for (m, n, k) in [
            (65_536, 32_768, 1),
            (1_048_561, 1, 1),
            (1 << 31, 1, 1),
            (1, 1 << 31, 1),
        ] {
            let plan = variant.plan(shape(m, n, k), &LIMITS).unwrap();
            let results: u64 = plan
                .launches
                .iter()
                .map(|launch| launch.grid().count() * launch.block().count())
                .max()
                .unwrap();
            assert!(results > 0, "{} at {m}×{n}×{k}", variant.name);
            LIMITS.check(&plan).unwrap();
        }
    }
}

#[test]
fn an_old_device_is_an_error() {
    let old = DeviceLimits {
        compute_capability: ComputeCapability::new(7, 0),
        code: Target::parse("sm_70"),
        ..LIMITS
    };
    for variant in gemm::all() {
        let error = variant.plan(shape(16, 16, 16), &old).unwrap_err();
        assert!(
            matches!(error, PlanError::ComputeCapability { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("7.0"), "{error}");
    }
}

#[test]
fn a_dimension_that_is_too_large_is_named() {
    let error = Shape::new(1 << 32, 1 << 32, 1).unwrap_err();
    assert!(
        error.to_string().starts_with("M = 4294967296 is too large"),
        "{error}"
    );
    assert!(Shape::new(gemm::MAX_DIMENSION.into(), 1, 1).is_ok());
    assert!(Shape::new(u64::from(gemm::MAX_DIMENSION) + 1, 1, 1).is_err());
    assert!(Shape::new(1, 1, u64::MAX).is_err());
}

#[test]
fn a_backend_that_is_not_embedded_is_an_error() {
    for &backend in Backend::ALL {
        let embedded = ptx::backends().any(|one| one == backend);
        assert_eq!(ptx::of(backend).next().is_some(), embedded);
        if !embedded {
            let Err(error) = host::Gpu::with_backend(0, backend) else {
                panic!("{backend} was opened");
            };
            assert!(error.is_usage(), "{error}");
            let said = error.to_string();
            assert!(said.contains(backend.name()), "{said}");
            assert!(said.contains("docs/rust-cuda.md"), "{said}");
        }
    }
    assert_eq!(ptx::backends().next(), Some(Backend::Nvptx));
}
