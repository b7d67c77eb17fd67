//! The scripts in `tools` that tests and checks do not run themselves.

use std::io::Write;
use std::process::{Command, Stdio};

/// What `tools/operands.awk` prints for machine code, a line for each instruction, as
/// the fields of its lines.
fn operands(code: &[String]) -> Vec<Vec<String>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/operands.awk");
    let mut awk = Command::new("awk")
        .args(["-f", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("awk");
    let mut text = String::new();
    for (i, instruction) in code.iter().enumerate() {
        text += &format!("        /*{:04x}*/       {instruction} ;\n", 16 * i);
    }
    let mut input = awk.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("awk reads");
    drop(input);
    let output = awk.wait_with_output().expect("awk ends");
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).expect("text");
    output
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

/// Multiply-adds that read one register of each bank.
fn plain(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|_| "FFMA R9, R2, R2, R3".to_owned())
}

#[test]
fn operands_are_counted_by_what_is_kept() {
    let of = |special: &[&str]| {
        let mut code: Vec<String> = special.iter().map(|&line| line.to_owned()).collect();
        code.extend(plain(64));
        let counted = operands(&code);
        assert_eq!(counted.len(), 1);
        let numbers = counted[0][1..].iter().map(|n| n.parse().expect("a number"));
        numbers.collect::<Vec<u32>>()
    };
    assert_eq!(of(&[]), [64, 64, 0, 0]);
    assert_eq!(of(&["FFMA R9, R2, R4, R7"]), [65, 65, 1, 0]);
    // The second operand is kept in its place, and read in another.
    let kept = "FFMA R9, R2, R4.reuse, R7";
    assert_eq!(of(&[kept, "FFMA R9, R5, R4, R8"]), [66, 66, 1, 0]);
    assert_eq!(of(&[kept, "FFMA R9, R4, R5, R8"]), [66, 66, 2, 0]);
    // Two reads are too many for one bank.
    assert_eq!(of(&[kept, "FFMA R9, R6, R4, R8"]), [66, 66, 1, 1]);
    // A load leaves it kept, another instruction does not.
    let load = "@!P0 LDS.128 R12, [R20+0x40]";
    assert_eq!(of(&[kept, load, "FFMA R9, R5, R4, R8"]), [67, 66, 1, 0]);
    let add = "IADD3 R20, R20, 0x8, RZ";
    assert_eq!(of(&[kept, add, "FFMA R9, R5, R4, R8"]), [67, 66, 2, 0]);
}

#[test]
fn operands_are_counted_between_branches() {
    let mut code: Vec<String> = plain(64).collect();
    code.push("@P1 BRA `(.L_x_2)".to_owned());
    code.extend(plain(63));
    code.push("BRA `(.L_x_1)".to_owned());
    code.extend(plain(70));
    let counted = operands(&code);
    assert_eq!(
        counted,
        [
            ["0x0000", "65", "64", "0", "0"],
            ["0x0810", "70", "70", "0", "0"]
        ]
    );
}
