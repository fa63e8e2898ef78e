//! The front end for Thrift IDL: files, their includes, and what they define.
//!
//! The grammar is the parser crate's work; it keeps no positions, so the module `place` finds the line of what
//! is wrong by searching the text again.

use crate::SchemaError;
use pilota_thrift_parser::{FileParser, FileSource, Item};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

mod default;
mod link;
mod place;
mod services;

pub(crate) use link::link;

/// Brackets inside brackets: beyond it the parser's recursion could exhaust the stack.
const MAX_NESTING: usize = 64;

/// One IDL file.
pub(crate) struct IdlFile {
    /// Its path, as messages show it.
    name: String,
    /// Its name without directories and extension: what other files call it.
    stem: String,
    words: place::Words,
    items: Vec<Item>,
    /// What it includes: by stem, the place among all files.
    includes: HashMap<String, usize>,
}

impl IdlFile {
    fn error(&self, line: usize, problem: impl Into<String>) -> SchemaError {
        SchemaError::Thrift { file: self.name.clone(), line, problem: problem.into() }
    }
}

/// Parses one file, without looking at its includes.
pub(crate) fn parse(path: &Path, text: String) -> Result<IdlFile, SchemaError> {
    let words = place::Words::of(&text);
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let mut file = IdlFile {
        name: path.display().to_string(),
        stem,
        words,
        items: Vec::new(),
        includes: HashMap::new(),
    };
    if let Some(line) = file.words.deeper_than(MAX_NESTING) {
        return Err(file.error(line, format!("more than {MAX_NESTING} brackets inside one another")));
    }
    match FileParser::new(FileSource::new(&text)).parse() {
        Ok(parsed) => file.items = parsed.items,
        Err(error) => {
            // The parser states the position in the text of its error only.
            let (line, problem) = place::of_syntax_error(&format!("{error:?}"));
            return Err(file.error(line, problem));
        }
    }
    Ok(file)
}

/// Reads `path` and all it includes; the first file is `path`'s.
pub(crate) fn load(path: &Path, include_dirs: &[&Path]) -> Result<Vec<IdlFile>, SchemaError> {
    let mut loader = Loader { include_dirs, files: Vec::new(), known: HashMap::new() };
    loader.file(path)?;
    Ok(loader.files)
}

struct Loader<'l> {
    include_dirs: &'l [&'l Path],
    files: Vec<IdlFile>,
    /// By canonical path: the place among the files, and whether its includes are still being read.
    known: HashMap<PathBuf, (usize, bool)>,
}

impl Loader<'_> {
    fn file(&mut self, path: &Path) -> Result<usize, SchemaError> {
        let unreadable = |error: std::io::Error| SchemaError::Unreadable {
            file: path.display().to_string(),
            problem: error.to_string(),
        };
        let canonical = path.canonicalize().map_err(unreadable)?;
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let file_idx = self.files.len();
        self.files.push(parse(path, text)?);
        self.known.insert(canonical.clone(), (file_idx, true));
        let mut paths = Vec::new();
        for item in &self.files[file_idx].items {
            if let Item::Include(include) = item {
                paths.push(include.path.0.clone());
            }
        }
        for include in paths {
            self.include(file_idx, path, &include)?;
        }
        self.known.insert(canonical, (file_idx, false));
        Ok(file_idx)
    }

    fn include(&mut self, file_idx: usize, from: &Path, include: &str) -> Result<(), SchemaError> {
        let line = self.files[file_idx].words.include_line(include);
        let beside = from.parent().unwrap_or(Path::new(""));
        let dirs = std::iter::once(beside).chain(self.include_dirs.iter().copied());
        let Some(found) = dirs.map(|dir| dir.join(include)).find(|path| path.is_file()) else {
            let problem = format!("{include} is neither beside this file nor in an include directory");
            return Err(self.files[file_idx].error(line, problem));
        };
        let known = found.canonicalize().ok().and_then(|path| self.known.get(&path).copied());
        let target = match known {
            Some((_, true)) => {
                let problem = format!("{include} includes this file, directly or by way of others");
                return Err(self.files[file_idx].error(line, problem));
            }
            Some((target, false)) => target,
            None => self.file(&found)?,
        };
        let stem = self.files[target].stem.clone();
        let file = &mut self.files[file_idx];
        if file.includes.insert(stem.clone(), target).is_some_and(|other| other != target) {
            return Err(file.error(line, format!("two of the included files are called {stem}")));
        }
        Ok(())
    }
}
