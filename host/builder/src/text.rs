//! Reading PTX as rustc writes it, and putting in what rustc can't write.

use std::collections::BTreeMap;

use crate::{Architecture, BuildError};

/// Functions that every CUDA driver defines.
const DRIVER_FUNCTIONS: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// PTX directives of one kernel that have no counterpart in Rust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `.maxntid`: the most threads a block will have. Without it the compiler allows for 1,024
    /// and may hold back registers.
    pub max_threads: Option<u32>,
    /// `.minnctapersm`: blocks that must fit on one multiprocessor. PTX takes it only beside
    /// `.maxntid`.
    pub min_blocks: Option<u32>,
    /// `.explicitcluster` and `.reqnctapercluster`: blocks of a cluster in x, y and z. Left out
    /// below `sm_90`, which has no clusters.
    pub cluster: Option<[u32; 3]>,
    /// Aligns every parameter of 128 bytes to 64, as a tensor map by value must be. rustc 1.96
    /// crashes on such a parameter of alignment 64 and takes 16.
    pub tensor_maps: bool,
    /// The architecture without which the kernel does not exist. In a file for another the kernel
    /// may be missing.
    pub needs: Option<Architecture>,
}

/// What the text of a PTX file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub version: (u32, u32),
    pub target: String,
    pub entries: Vec<String>,
}

/// One `.entry` with the places that directives change, as offsets into the text.
struct Entry<'a> {
    name: &'a str,
    /// Between the parentheses.
    parameters: std::ops::Range<usize>,
    /// After the closing parenthesis.
    end: usize,
}

/// The text without its comments, of the same length, so that offsets hold in both.
fn without_comments(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.find("//") {
            // A path in `.file` may hold two slashes.
            Some(at) if !line[..at].contains('"') => {
                let end = line.len() - usize::from(line.ends_with('\n'));
                let blank = " ".repeat(end - at);
                format!("{}{blank}{}", &line[..at], &line[end..])
            }
            _ => line.to_owned(),
        })
        .collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// The name that `text` starts with, after white space.
fn name(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// `word` as a directive of its own, so that `.entry` is not found in `.entry_point`.
fn directive<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(move |(at, _)| at + word.len())
        .filter(|&end| !text[end..].starts_with(is_name))
}

fn entries<'a>(text: &'a str, architecture: &str) -> Result<Vec<Entry<'a>>, BuildError> {
    let malformed = |reason: String| BuildError::Malformed {
        architecture: architecture.to_owned(),
        reason,
    };
    directive(text, ".entry")
        .map(|at| {
            let name = name(&text[at..])
                .ok_or_else(|| malformed("an `.entry` without a name".to_owned()))?;
            let after = at + text[at..].find(name).unwrap_or(0) + name.len();
            // A kernel without parameters may have no parentheses.
            let blank = text[after..].len() - text[after..].trim_start().len();
            if !text[after + blank..].starts_with('(') {
                return Ok(Entry {
                    name,
                    parameters: after..after,
                    end: after,
                });
            }
            let open = after + blank + 1;
            let close = text[open..]
                .find(')')
                .map(|n| open + n)
                .ok_or_else(|| malformed(format!("the parameters of `{name}` do not end")))?;
            Ok(Entry {
                name,
                parameters: open..close,
                end: close + 1,
            })
        })
        .collect()
}

/// Reads version, target and kernels.
pub(crate) fn header(text: &str, architecture: &str) -> Result<Header, BuildError> {
    let plain = without_comments(text);
    let malformed = |reason: &str| BuildError::Malformed {
        architecture: architecture.to_owned(),
        reason: reason.to_owned(),
    };
    let first = |word| {
        directive(&plain, word)
            .next()
            .and_then(|at| plain[at..].lines().next())
            .map(str::trim)
    };
    let version = first(".version")
        .and_then(|v| v.split_once('.'))
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| malformed("no `.version`"))?;
    let target = first(".target")
        .and_then(name)
        .ok_or_else(|| malformed("no `.target`"))?
        .to_owned();
    let entries: Vec<_> = entries(&plain, architecture)?
        .iter()
        .map(|e| e.name.to_owned())
        .collect();
    if entries.is_empty() {
        return Err(BuildError::NoEntries {
            architecture: architecture.to_owned(),
        });
    }
    Ok(Header {
        version,
        target,
        entries,
    })
}

/// Fails where the text declares a function that neither it nor the driver defines.
pub(crate) fn check_resolved(text: &str, architecture: &str) -> Result<(), BuildError> {
    let plain = without_comments(text);
    let functions: Vec<_> = directive(&plain, ".extern")
        .filter_map(|at| {
            let rest = plain[at..].trim_start().strip_prefix(".func")?.trim_start();
            // A result stands in parentheses before the name.
            let rest = match rest.strip_prefix('(') {
                Some(result) => result.split_once(')')?.1,
                None => rest,
            };
            name(rest)
        })
        .filter(|function| !DRIVER_FUNCTIONS.contains(function))
        .map(str::to_owned)
        .collect();
    if functions.is_empty() {
        return Ok(());
    }
    Err(BuildError::Unresolved {
        architecture: architecture.to_owned(),
        functions,
    })
}

/// The lines that go between a kernel's parameters and its body.
fn lines(
    entry: &str,
    directives: &Directives,
    architecture: &Architecture,
) -> Result<String, BuildError> {
    let wrong = |reason: &str| BuildError::Directive {
        entry: entry.to_owned(),
        reason: reason.to_owned(),
    };
    let mut lines = String::new();
    match directives.max_threads {
        Some(n @ 1..=1024) => lines += &format!("\n.maxntid {n}, 1, 1"),
        Some(_) => return Err(wrong("a block has 1 to 1,024 threads, so must max_threads")),
        None => {}
    }
    match (directives.min_blocks, directives.max_threads) {
        (Some(0), _) => return Err(wrong("min_blocks is 0")),
        (Some(_), None) => return Err(wrong("min_blocks needs max_threads beside it")),
        (Some(n), Some(_)) => lines += &format!("\n.minnctapersm {n}"),
        (None, _) => {}
    }
    if let Some(cluster @ [x, y, z]) = directives.cluster {
        if cluster.contains(&0) {
            return Err(wrong("a cluster has at least one block in x, y and z"));
        }
        if architecture.number() >= 90 {
            lines += &format!("\n.explicitcluster\n.reqnctapercluster {x}, {y}, {z}");
        }
    }
    Ok(lines)
}

/// The kernels that have launch bounds.
pub(crate) fn bounded(text: &str, architecture: &str) -> Result<Vec<String>, BuildError> {
    let plain = without_comments(text);
    let has_bounds = |entry: &&Entry<'_>| {
        let rest = &plain[entry.end..];
        let header = &rest[..rest.find('{').unwrap_or(rest.len())];
        [".maxntid", ".reqntid", ".minnctapersm"]
            .iter()
            .any(|bound| header.contains(bound))
    };
    let found = entries(&plain, architecture)?;
    Ok(found
        .iter()
        .filter(has_bounds)
        .map(|entry| entry.name.to_owned())
        .collect())
}

/// Raises the alignment of 128-byte parameters from 16 to 64; `None` where there is none.
fn align_tensor_maps(parameters: &str) -> Option<String> {
    let mut found = false;
    let raised: Vec<_> = parameters
        .split(',')
        .map(|parameter| {
            if !parameter.trim_end().ends_with("[128]") {
                return parameter.to_owned();
            }
            found = true;
            parameter.replacen(".align 16 ", ".align 64 ", 1)
        })
        .collect();
    found.then(|| raised.join(","))
}

/// Puts the directives into the text and changes nothing else.
pub(crate) fn insert(
    text: &str,
    architecture: &Architecture,
    directives: &BTreeMap<String, Directives>,
) -> Result<String, BuildError> {
    let plain = without_comments(text);
    let found = entries(&plain, &architecture.to_string())?;
    for (name, wanted) in directives {
        let here = wanted.needs.as_ref().is_none_or(|n| architecture.has(n));
        if here && found.iter().all(|entry| entry.name != name) {
            return Err(BuildError::UnknownEntry {
                architecture: architecture.to_string(),
                entry: name.clone(),
                known: found.iter().map(|entry| entry.name.to_owned()).collect(),
            });
        }
    }
    let mut out = String::with_capacity(text.len() + 64 * found.len());
    let mut copied = 0;
    for entry in &found {
        let Some(wanted) = directives.get(entry.name) else {
            continue;
        };
        if wanted.tensor_maps {
            let raised = align_tensor_maps(&text[entry.parameters.clone()]).ok_or_else(|| {
                BuildError::Directive {
                    entry: entry.name.to_owned(),
                    reason: "tensor_maps is set, but no parameter has 128 bytes".to_owned(),
                }
            })?;
            out += &text[copied..entry.parameters.start];
            out += &raised;
            copied = entry.parameters.end;
        }
        out += &text[copied..entry.end];
        out += &lines(entry.name, wanted, architecture)?;
        copied = entry.end;
    }
    out += &text[copied..];
    Ok(out)
}

/// Two files for the same target as one: the kernels of `more` behind those of `text`.
///
/// Files of source lines are numbered by each from one, so those of `more` move up.
pub(crate) fn joined(text: &str, more: &str) -> String {
    let number = |line: &str, word: &str| -> Option<(u32, String)> {
        let rest = line.trim_start().strip_prefix(word)?.trim_start();
        let (number, rest) = rest.split_once(char::is_whitespace)?;
        Some((number.parse().ok()?, rest.to_owned()))
    };
    let numbers = text.lines().filter_map(|line| number(line, ".file"));
    let last = numbers.map(|(number, _)| number).max().unwrap_or(0);

    let mut joined = text.trim_end().to_owned();
    joined.push('\n');
    // The header is the same, and so is the empty section that ends the code.
    let body = more
        .lines()
        .skip_while(|line| !line.starts_with(".address_size"));
    for line in body.skip(1) {
        if line.trim_start().starts_with(".section") && line.contains(".debug_macinfo") {
            continue;
        }
        let moved = [".file", ".loc"].iter().find_map(|word| {
            let (number, rest) = number(line, word)?;
            Some(format!("\t{word}\t{} {rest}", number + last))
        });
        joined.push_str(moved.as_deref().unwrap_or(line));
        joined.push('\n');
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from what rustc 1.96 writes.
    const PTX: &str = "//
// Generated by LLVM NVPTX Back-End
//

.version 7.0
.target sm_80
.address_size 64

\t// .globl\tidx
.extern .shared .align 1024 .b8 DYN_SMEM[];
.visible .entry idx(
\t.param .u64 .ptr .align 1 idx_param_0,
\t.param .u32 idx_param_1
)
{
\t.reg .pred \t%p<12>;
\tret;
}
\t// .globl\tnoop, not an .entry of a comment(
.visible .entry noop()
{
\tret;
}
.visible .entry tm(
\t.param .align 16 .b8 tm_param_0[128],
\t.param .align 16 .b8 tm_param_1[64],
\t.param .u64 .ptr .align 1 tm_param_2
)
{
\tret;
}
\t.file\t1 \"/usr//core/src/nvptx/mod.rs\"
";

    fn sm(name: &str) -> Architecture {
        Architecture::parse(name).unwrap()
    }

    fn one(name: &str, directives: Directives) -> BTreeMap<String, Directives> {
        BTreeMap::from([(name.to_owned(), directives)])
    }

    #[test]
    fn header_is_read() {
        let header = header(PTX, "sm_80").unwrap();
        assert_eq!(header.version, (7, 0));
        assert_eq!(header.target, "sm_80");
        assert_eq!(header.entries, ["idx", "noop", "tm"]);
    }

    #[test]
    fn target_may_have_options() {
        let text = PTX.replace(".target sm_80", ".target sm_90a, debug");
        assert_eq!(header(&text, "sm_90a").unwrap().target, "sm_90a");
    }

    #[test]
    fn broken_text_is_an_error() {
        let without_version = PTX.replace(".version 7.0", "");
        let without_target = PTX.replace(".target sm_80", "");
        let odd_version = PTX.replace("7.0", "seven");
        let cut = &PTX[..PTX.find("idx_param_1").unwrap()];
        for text in ["", &without_version, &without_target, &odd_version, cut] {
            let error = header(text, "sm_80").unwrap_err();
            assert!(matches!(error, BuildError::Malformed { .. }), "{error}");
        }
        let none = ".version 7.0\n.target sm_80\n";
        let error = header(none, "sm_80").unwrap_err();
        assert!(matches!(error, BuildError::NoEntries { .. }), "{error}");
    }

    #[test]
    fn nothing_wanted_changes_nothing() {
        assert_eq!(insert(PTX, &sm("sm_80"), &BTreeMap::new()).unwrap(), PTX);
        let empty = one("idx", Directives::default());
        assert_eq!(insert(PTX, &sm("sm_80"), &empty).unwrap(), PTX);
    }

    #[test]
    fn directives_follow_the_parameters() {
        let bounds = Directives {
            max_threads: Some(384),
            min_blocks: Some(1),
            ..Directives::default()
        };
        let mut wanted = one("idx", bounds.clone());
        wanted.insert("noop".to_owned(), bounds);
        let out = insert(PTX, &sm("sm_80"), &wanted).unwrap();
        assert!(out.contains("idx_param_1\n)\n.maxntid 384, 1, 1\n.minnctapersm 1\n{"));
        assert!(out.contains("noop()\n.maxntid 384, 1, 1\n.minnctapersm 1\n{"));
        assert_eq!(out.matches(".maxntid").count(), 2);
        let back = out.replace("\n.maxntid 384, 1, 1\n.minnctapersm 1", "");
        assert_eq!(back, PTX);
    }

    #[test]
    fn clusters_only_where_there_are_any() {
        let wanted = one(
            "noop",
            Directives {
                cluster: Some([2, 1, 1]),
                ..Directives::default()
            },
        );
        let hopper = insert(PTX, &sm("sm_90a"), &wanted).unwrap();
        assert!(hopper.contains("noop()\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{"));
        assert_eq!(insert(PTX, &sm("sm_80"), &wanted).unwrap(), PTX);
    }

    #[test]
    fn tensor_maps_are_aligned() {
        let maps = Directives {
            tensor_maps: true,
            max_threads: Some(128),
            ..Directives::default()
        };
        let out = insert(PTX, &sm("sm_90a"), &one("tm", maps.clone())).unwrap();
        assert!(out.contains("(\n\t.param .align 64 .b8 tm_param_0[128],\n"));
        assert!(out.contains(".param .align 16 .b8 tm_param_1[64],"));
        assert!(out.contains("tm_param_2\n)\n.maxntid 128, 1, 1\n{"));
        let error = insert(PTX, &sm("sm_90a"), &one("idx", maps)).unwrap_err();
        assert!(matches!(error, BuildError::Directive { .. }), "{error}");
    }

    #[test]
    fn an_unknown_kernel_is_named() {
        let error = insert(PTX, &sm("sm_80"), &one("id", Directives::default())).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("`id`") && said.contains("idx, noop, tm"),
            "{said}"
        );
        let elsewhere = Directives {
            needs: Some(sm("sm_90a")),
            ..Directives::default()
        };
        let elsewhere = one("id", elsewhere);
        assert_eq!(insert(PTX, &sm("sm_80"), &elsewhere).unwrap(), PTX);
        insert(PTX, &sm("sm_90a"), &elsewhere).unwrap_err();
    }

    #[test]
    fn impossible_directives_are_refused() {
        let none = Directives::default;
        for wrong in [
            Directives {
                max_threads: Some(0),
                ..none()
            },
            Directives {
                max_threads: Some(1025),
                ..none()
            },
            Directives {
                min_blocks: Some(1),
                ..none()
            },
            Directives {
                max_threads: Some(32),
                min_blocks: Some(0),
                ..none()
            },
            Directives {
                cluster: Some([2, 0, 1]),
                ..none()
            },
        ] {
            let error = insert(PTX, &sm("sm_80"), &one("idx", wrong)).unwrap_err();
            assert!(error.to_string().starts_with("kernel `idx`: "), "{error}");
        }
    }

    #[test]
    fn calls_out_of_the_file_are_found() {
        check_resolved(PTX, "sm_80").unwrap();
        let printf = format!("{PTX}.extern .func  (.param .b32 func_retval0) vprintf\n(\n)\n;\n");
        check_resolved(&printf, "sm_80").unwrap();
        let sine = format!(
            "{printf}.extern .func  (.param .b32 func_retval0) sinf\n(\n)\n;\n.extern .func boom\n()\n;\n"
        );
        let error = check_resolved(&sine, "sm_80").unwrap_err().to_string();
        assert!(error.contains("sinf, boom"), "{error}");
    }

    #[test]
    fn joined_files_keep_their_lines_apart() {
        let file = |kernel: &str, source: &str| {
            format!(
                "//\n.version 8.0\n.target sm_90a\n.address_size 64\n\n.visible .entry {kernel}()\n\
                 {{\n\t.loc\t1 7 3\n\tret;\n}}\n\t.section\t.debug_macinfo\t{{\t}}\n\
                 \t.file\t1 \"{source}\"\n"
            )
        };
        let text = joined(&file("one", "a.rs"), &file("two", "b.rs"));
        assert_eq!(text.matches(".version").count(), 1);
        assert_eq!(text.matches(".debug_macinfo").count(), 1);
        assert!(text.contains(".file\t1 \"a.rs\"") && text.contains(".file\t2 \"b.rs\""));
        assert!(text.contains(".loc\t1 7 3") && text.contains(".loc\t2 7 3"));
        let names: Vec<_> = text
            .lines()
            .filter(|line| line.contains(".entry"))
            .collect();
        assert_eq!(names, [".visible .entry one()", ".visible .entry two()"]);
    }
}
