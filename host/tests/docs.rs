//! The output that the documentation shows is what the commands print.
//!
//! A block to check stands between `<!-- output of COMMAND ARGUMENTS -->` and
//! `<!-- end of output -->`. `UPDATE_DOCS=1 cargo test -p host --test docs`
//! rewrites the blocks. Line and column numbers and the width of columns are not
//! compared: an edit elsewhere in a kernel's file moves them.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::path::Path;

const BEGIN: &str = "<!-- output of ";
const END: &str = "<!-- end of output -->";

fn output(command: &str) -> String {
    let assert = Command::new(cargo_bin!("matmul"))
        .args(command.split_whitespace())
        // Registers would depend on the ptxas of the machine, if it has one.
        .env("PTXAS", "/nonexistent")
        .assert()
        .success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("text")
}

fn comparable(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        words.push(match word.split_once(".rs:") {
            Some((file, rest)) => {
                let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
                format!("{file}.rs{tail}")
            }
            None => word.to_owned(),
        });
    }
    words.join(" ")
}

fn check(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut written = String::new();
    let mut rest = text.as_str();
    let mut blocks = 0;
    while let Some(start) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(start);
        let (command, block) = block[BEGIN.len()..]
            .split_once(" -->")
            .expect("a closed marker");
        let (shown, after) = block.split_once(END).expect("an end marker");
        let printed = format!("\n```text\n{}\n```\n", output(command).trim_end());
        if !update {
            assert_eq!(comparable(shown), comparable(&printed), "{page}: {command}");
        }
        written.push_str(&format!("{before}{BEGIN}{command} -->{printed}{END}"));
        rest = after;
        blocks += 1;
    }
    written.push_str(rest);
    assert!(blocks > 0, "{page} shows no output");
    if update {
        std::fs::write(&path, written).unwrap_or_else(|error| panic!("{page}: {error}"));
    }
}

#[test]
fn the_lesson_shows_what_is_printed() {
    check("learn-with-the-simulator.md");
}
