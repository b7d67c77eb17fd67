//! The few values of a `Cargo.toml` that the build needs, without a TOML parser.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::BuildError;

/// What the compiler must be told about the kernels' crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub crate_name: String,
    pub edition: String,
}

/// A plain string `key = "value"` of a table, where it is written on one line.
pub(crate) fn value(manifest: &str, table: &str, key: &str) -> Option<String> {
    raw(manifest, table, key)?
        .strip_prefix('"')?
        .split_once('"')
        .map(|(value, _)| value.to_owned())
}

fn raw<'a>(manifest: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            inside = header
                .split_once(']')
                .is_some_and(|(name, _)| name.trim() == table);
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim());
        }
    }
    None
}

/// Reads name and edition, the edition from the workspace where the crate says so.
pub(crate) fn read(folder: &Path) -> Result<Manifest, BuildError> {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(BuildError::io("read", &path))?;
    let lacks = |reason: &str| BuildError::Manifest {
        path: path.clone(),
        reason: reason.to_owned(),
    };
    let name = value(&text, "package", "name").ok_or_else(|| lacks("has no package name"))?;
    let edition = value(&text, "package", "edition")
        .or_else(|| workspace_edition(folder))
        .ok_or_else(|| lacks("has no edition, and no workspace above it has one"))?;
    Ok(Manifest {
        crate_name: name.replace('-', "_"),
        edition,
    })
}

/// The manifests above `folder` that may be its workspace's, nearest first.
fn above(folder: &Path) -> impl Iterator<Item = PathBuf> {
    folder.ancestors().skip(1).map(|f| f.join("Cargo.toml"))
}

fn workspace_edition(folder: &Path) -> Option<String> {
    above(folder).find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        value(&text, "workspace.package", "edition")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Folder;

    #[test]
    fn values_belong_to_their_table() {
        let text = "[package]\nname = \"a-b\" # comment\nedition.workspace = true\n\
                    [ lib ]\nname=\"c\"\n[workspace.package]\nedition = \"2024\"\n";
        assert_eq!(value(text, "package", "name").unwrap(), "a-b");
        assert_eq!(value(text, "lib", "name").unwrap(), "c");
        assert_eq!(value(text, "package", "edition"), None);
        assert_eq!(value(text, "workspace.package", "edition").unwrap(), "2024");
    }

    #[test]
    fn the_edition_may_be_the_workspaces() {
        let folder = Folder::new("edition");
        let member = folder.path().join("inner/kernels");
        fs::create_dir_all(&member).unwrap();
        let manifest = "[package]\nname = \"my-kernels\"\nedition.workspace = true\n";
        fs::write(member.join("Cargo.toml"), manifest).unwrap();
        let error = read(&member).unwrap_err();
        assert!(matches!(error, BuildError::Manifest { .. }), "{error}");
        let root = "[workspace.package]\nedition = \"2021\"\n";
        fs::write(folder.path().join("Cargo.toml"), root).unwrap();
        let read = read(&member).unwrap();
        assert_eq!(read.crate_name, "my_kernels");
        assert_eq!(read.edition, "2021");
    }
}
