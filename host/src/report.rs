//! Tables for people, and the files that hold them.

use crate::Error;
use std::path::Path;

/// A table with a heading, its columns aligned: those whose cells all start
/// with a digit to the right, the others to the left.
pub fn table<const N: usize>(heading: &[&str; N], rows: &[[String; N]]) -> String {
    aligned(heading, rows, &[true; N])
}

/// As [`table()`], without the columns that are empty in every row.
pub fn table_of_filled<const N: usize>(heading: &[&str; N], rows: &[[String; N]]) -> String {
    let filled = std::array::from_fn(|column| rows.iter().any(|row| !row[column].is_empty()));
    aligned(heading, rows, &filled)
}

/// A table in Markdown, without the columns that are empty in every row. Columns
/// of numbers stand to the right, the first never does.
pub fn markdown<H: AsRef<str>, R: AsRef<[String]>>(heading: &[H], rows: &[R]) -> String {
    let cells = |column: usize| {
        let rows = rows.iter().filter_map(move |row| row.as_ref().get(column));
        rows.map(String::as_str)
    };
    let shown: Vec<_> = (0..heading.len())
        .filter(|&column| cells(column).any(|cell| !cell.is_empty()))
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<_> = shown.iter().map(|&column| cell(column)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let escaped = |text: &str| text.replace('|', "\\|");
    let mut text = line(&|column| escaped(heading[column].as_ref()));
    let number = |cell: &str| cell.is_empty() || cell == "–" || cell.starts_with(char::is_numeric);
    for &column in &shown {
        let right = column > 0 && cells(column).all(number);
        text += if right { "|--:" } else { "|---" };
    }
    text += "|\n";
    for row in rows {
        let row = row.as_ref();
        text += &line(&|column| escaped(row.get(column).map_or("", String::as_str)));
    }
    text
}

fn aligned<const N: usize>(heading: &[&str; N], rows: &[[String; N]], shown: &[bool; N]) -> String {
    let numeric = |column: usize| {
        rows.iter().all(|row| {
            row[column].is_empty() || row[column].starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([heading[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let columns: [_; N] = std::array::from_fn(|column| (width(column), numeric(column)));
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for ((cell, (width, numeric)), _) in cells.iter().zip(columns).zip(shown).filter(|it| *it.1)
        {
            if !line.is_empty() {
                line.push_str("  ");
            }
            if numeric {
                line += &format!("{cell:>width$}");
            } else {
                line += &format!("{cell:<width$}");
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(*heading);
    for row in rows {
        text += &line(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

/// A time in the unit that suits it, with four figures.
pub fn time(seconds: f64) -> String {
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let digits = (3 - value.max(1.0).log10() as i32).max(0) as usize;
    format!("{value:.digits$} {unit}")
}

/// A rate in GFLOP/s, with four figures.
pub fn gflops(flops_per_second: f64) -> String {
    let value = flops_per_second / 1e9;
    let digits = (3 - value.max(1.0).log10() as i32).clamp(0, 3) as usize;
    format!("{value:.digits$}")
}

/// The text of a file with `new` in place of what stands between two markers,
/// each of which stays, on a line of its own.
///
/// # Errors
///
/// [`Error::File`] where the file cannot be read or lacks a marker.
pub fn between_markers(path: &Path, markers: [&str; 2], new: &str) -> Result<String, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| file(path, error))?;
    let position = |marker: &str, from: usize| {
        text[from..]
            .find(marker)
            .map(|at| from + at)
            .ok_or_else(|| file(path, format!("there is no line '{marker}'")))
    };
    let start = position(markers[0], 0)? + markers[0].len();
    let end = position(markers[1], start)?;
    Ok(format!("{}\n{new}{}", &text[..start], &text[end..]))
}

/// Replaces a file whole: whoever reads it meanwhile sees the old text or the
/// new.
///
/// # Errors
///
/// [`Error::File`].
pub fn replace_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written =
        std::fs::write(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The error that counts is the first.
        let _ = std::fs::remove_file(&temporary);
    }
    written.map_err(|error| file(path, error))
}

fn file(path: &Path, reason: impl ToString) -> Error {
    Error::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["cpu".into(), "12".into()], ["tiled_16".into(), "3".into()]];
        let expected = "name      figure\ncpu           12\ntiled_16       3\n";
        assert_eq!(table(&["name", "figure"], &rows), expected);
        let rows = rows.map(|[name, figure]| [name, String::new(), figure]);
        let heading = ["name", "nothing", "figure"];
        assert_eq!(table_of_filled(&heading, &rows), expected);
        assert!(table(&heading, &rows).contains("nothing"));
    }

    #[test]
    fn markdown_has_what_is_filled() {
        let rows = [
            ["`a`", "1024", "", "tiles | of 16"],
            ["`b`", "–", "", "2×2"],
        ];
        let rows = rows.map(|row| row.map(String::from));
        let expected = "| kernel | rate | what |\n|---|--:|---|\n| `a` | 1024 | tiles \\| of 16 |\n\
                        | `b` | – | 2×2 |\n";
        assert_eq!(
            markdown(&["kernel", "rate", "empty", "what"], &rows),
            expected
        );
        let none: [[String; 1]; 0] = [];
        assert_eq!(markdown(&["kernel"], &none), "");
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(time(1.23456), "1.235 s");
        assert_eq!(time(0.0123456), "12.35 ms");
        assert_eq!(time(0.000_123_456), "123.5 µs");
        assert_eq!(time(0.0), "0.000 µs");
        assert_eq!(gflops(8.123_456e12), "8123");
        assert_eq!(gflops(1.5e9), "1.500");
        assert_eq!(gflops(0.0), "0.000");
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let path = std::env::temp_dir().join(format!("report-{}", std::process::id()));
        replace_file(&path, "before\n<a>\nold\n<b>\nafter\n").unwrap();
        let text = between_markers(&path, ["<a>", "<b>"], "new\n").unwrap();
        assert_eq!(text, "before\n<a>\nnew\n<b>\nafter\n");
        replace_file(&path, &text).unwrap();
        assert_eq!(
            between_markers(&path, ["<a>", "<b>"], "new\n").unwrap(),
            text
        );
        let error = between_markers(&path, ["<b>", "<a>"], "").unwrap_err();
        assert!(error.to_string().ends_with("no line '<a>'"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(between_markers(&path, ["<a>", "<b>"], "").is_err());
    }
}
