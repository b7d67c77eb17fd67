//! Which shapes a sweep runs over: lists, ranges, and sets that others use.

use crate::Error;
use kernels::gemm::Shape;

/// A named set of shapes.
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    shapes: fn() -> Vec<[u64; 3]>,
}

/// Thin shapes and long ones, of `ragged` and `ladder`.
const THIN: [[u64; 3]; 5] = [
    [5124, 700, 2048],
    [35, 8457, 2560],
    [128, 128, 131_072],
    [7680, 1, 2560],
    [1, 4096, 4096],
];

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "squares",
        summary: "squares of powers of two, from 256 to 8192",
        shapes: || squares([256, 512, 1024, 2048, 4096, 8192]),
    },
    Preset {
        name: "ragged",
        summary: "shapes that no tile divides, thin ones and long ones",
        shapes: || {
            let mut shapes = squares([1000, 4095, 4097]);
            shapes.extend(THIN);
            shapes
        },
    },
    Preset {
        name: "ladder",
        summary: "squares, and shapes around and far from them, where kernels stand beside cuBLAS",
        shapes: || {
            let mut shapes = squares([2048, 4096, 8192, 16384, 1024, 1000]);
            shapes.push([320, 640, 320]);
            shapes.extend(squares([4095]));
            shapes.extend([[4096, 4096, 4097], [4097, 4099, 4101]]);
            shapes.extend(THIN);
            shapes
        },
    },
    Preset {
        name: "llm",
        summary: "the linear layers of 7B and 8B language models at batch 1, 8, 32, 512 and 4096",
        shapes: llm,
    },
    Preset {
        name: "deepbench",
        summary: "Baidu's DeepBench: its products without a transposed factor, up to N = 9124",
        shapes: deepbench,
    },
    Preset {
        name: "off-by-8",
        summary: "squares of 1024, 2048 and 4096, each with its neighbours 8 below and above",
        shapes: || {
            squares(
                [1024, 2048, 4096]
                    .into_iter()
                    .flat_map(|size| [size - 8, size, size + 8]),
            )
        },
    },
];

fn squares(sizes: impl IntoIterator<Item = u64>) -> Vec<[u64; 3]> {
    sizes.into_iter().map(|size| [size; 3]).collect()
}

/// M is the batch (tokens), N the layer's outputs, K its inputs.
///
/// Llama 2 7B: hidden size 4096, intermediate 11008, 32 heads of 128 for
/// queries, keys and values. Llama 3 8B: intermediate 14336, and 8 heads for
/// keys and values. Projections with common inputs are one product, as
/// inference engines run them.
fn llm() -> Vec<[u64; 3]> {
    const LAYERS: [[u64; 2]; 7] = [
        [3 * 4096, 4096],           // 7B: queries, keys, values
        [4096 + 2 * 8 * 128, 4096], // 8B: queries, keys, values
        [4096, 4096],               // both: attention's output
        [2 * 11008, 4096],          // 7B: gate and up
        [4096, 11008],              // 7B: down
        [2 * 14336, 4096],          // 8B: gate and up
        [4096, 14336],              // 8B: down
    ];
    [1, 8, 32, 512, 4096]
        .into_iter()
        .flat_map(|batch| LAYERS.map(|[n, k]| [batch, n, k]))
        .collect()
}

/// From code/kernels/gemm_problems.h of baidu-research/DeepBench: the training
/// and inference sets, without transposed factors, which this project's kernels
/// do not take, and without N of 24000 and more, which say little that 9124 does
/// not.
fn deepbench() -> Vec<[u64; 3]> {
    let mut shapes = Vec::new();
    for hidden in [1760, 2048, 2560, 4096] {
        for batch in [16, 32, 64, 128, 7000] {
            shapes.push([hidden, batch, hidden]);
        }
        shapes.push([5124, 9124, hidden]);
        shapes.push([35, 8457, hidden]);
    }
    for batch in [16, 32, 64, 128] {
        shapes.push([7680, batch, 2560]);
        shapes.push([3072, batch, 1024]);
    }
    for [m, n] in [[512, 8], [1024, 8], [512, 16], [1024, 16]] {
        shapes.push([m, n, 500_000]);
    }
    for k in [2048, 2560] {
        for n in [700, 1500] {
            shapes.extend([[5124, n, k], [35, n, k]]);
        }
    }
    for batch in [1, 2, 4] {
        shapes.extend([[7680, batch, 2560], [3072, batch, 1024]]);
    }
    shapes.push([1024, 700, 512]);
    shapes
}

/// The shapes of the preset of that name, and nothing where there is none.
///
/// # Errors
///
/// None that can occur: every dimension of a preset is small.
pub fn preset(name: &str) -> Result<Option<Vec<Shape>>, Error> {
    PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .map(|preset| {
            (preset.shapes)()
                .into_iter()
                .map(|[m, n, k]| Ok(Shape::new(m, n, k)?))
                .collect()
        })
        .transpose()
}

/// The most values that a range may have.
const MOST_VALUES: u64 = 10_000;

/// The values of a dimension: one number, `START:STOP:STEP`, or
/// `START:STOP:*FACTOR`; STOP is among them where a step meets it.
///
/// # Errors
///
/// Says in words what is wrong with the text.
pub fn values(text: &str) -> Result<Vec<u64>, String> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("'{text}' is no whole number"))
    };
    let parts: Vec<_> = text.split(':').collect();
    let (start, stop, step) = match parts[..] {
        [one] => return Ok(vec![number(one)?]),
        [start, stop, step] => (number(start)?, number(stop)?, step),
        _ => {
            return Err(format!(
                "'{text}' is neither a number nor START:STOP:STEP, such as 1024:8192:1024"
            ));
        }
    };
    if stop < start {
        return Err(format!("'{text}' stops before it starts"));
    }
    let (factor, step) = match step.strip_prefix('*') {
        Some(factor) => (number(factor)?, 0),
        None => (1, number(step)?),
    };
    if factor < 2 && step == 0 || factor > 1 && start == 0 {
        return Err(format!("'{text}' never arrives: its step changes nothing"));
    }
    let mut values = Vec::new();
    let mut value = start;
    while value <= stop {
        if values.len() as u64 == MOST_VALUES {
            return Err(format!("'{text}' has more than {MOST_VALUES} values"));
        }
        values.push(value);
        match value.checked_mul(factor).and_then(|v| v.checked_add(step)) {
            Some(next) => value = next,
            None => break,
        }
    }
    Ok(values)
}

/// A shape written as M×N×K, with `×` or `x`; one number is a square.
///
/// # Errors
///
/// Says in words what is wrong with the text.
pub fn shape(text: &str) -> Result<Shape, String> {
    let sizes = text
        .split(['×', 'x'])
        .map(|size| size.parse::<u64>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| format!("'{text}' is not MxNxK, such as 4096x4096x4096"))?;
    let [m, n, k] = match sizes[..] {
        [size] => [size; 3],
        [m, n, k] => [m, n, k],
        _ => return Err(format!("'{text}' has {} sizes, not 3", sizes.len())),
    };
    Shape::new(m, n, k).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_shapes_they_say() {
        let count = |name| preset(name).unwrap().unwrap().len();
        assert_eq!(count("squares"), 6);
        assert_eq!(count("llm"), 35);
        assert_eq!(count("off-by-8"), 9);
        let ragged = preset("ragged").unwrap().unwrap();
        assert!(
            ragged
                .iter()
                .all(|s| s.m() % 16 != 0 || s.n() % 16 != 0 || s.k() > 100_000 || s.n() == 1)
        );
        for named in PRESETS {
            let shapes = preset(named.name).unwrap().unwrap();
            let distinct: std::collections::HashSet<_> = shapes.iter().collect();
            assert_eq!(distinct.len(), shapes.len(), "{}", named.name);
        }
        assert!(preset("nosuch").unwrap().is_none());
    }

    #[test]
    fn ranges_are_what_they_say() {
        assert_eq!(values("7").unwrap(), [7]);
        assert_eq!(values("1024:4096:1024").unwrap(), [1024, 2048, 3072, 4096]);
        assert_eq!(values("1:10:4").unwrap(), [1, 5, 9]);
        assert_eq!(values("256:2048:*2").unwrap(), [256, 512, 1024, 2048]);
        assert_eq!(values("5:5:1").unwrap(), [5]);
        let max = u64::MAX;
        assert_eq!(values(&format!("{max}:{max}:7")).unwrap(), [max]);
        for wrong in [
            "", "x", "1:2", "1:2:3:4", "2:1:1", "1:2:0", "1:2:*1", "0:8:*2", "1:2:*", "-1",
        ] {
            assert!(values(wrong).is_err(), "{wrong}");
        }
        assert!(values("0:99999999:1").unwrap_err().contains("10000 values"));
    }

    #[test]
    fn shapes_are_read_as_they_are_printed() {
        let expected = Shape::new(3, 4, 5).unwrap();
        assert_eq!(shape("3x4x5"), Ok(expected));
        assert_eq!(shape(&expected.to_string()), Ok(expected));
        assert_eq!(shape("8").unwrap().to_string(), "8×8×8");
        for wrong in ["", "3x4", "3x4x5x6", "ax4x5", "4294967296", "3×4×-5"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
    }
}
