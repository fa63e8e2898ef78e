//! Moves a corpus between its file and the folder that a fuzzer works on: `unpack FILE FOLDER`, `pack FOLDER FILE`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use tollfree_fuzzing::{pack, unpack};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let moved = match args.as_slice() {
        ["unpack", file, folder] => unpack_into(Path::new(file), Path::new(folder)),
        ["pack", folder, file] => pack_into(Path::new(folder), Path::new(file)),
        _ => Err("usage: tollfree-corpus unpack FILE FOLDER | pack FOLDER FILE".to_owned()),
    };
    match moved {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("tollfree-corpus: {what}");
            ExitCode::FAILURE
        }
    }
}

fn unpack_into(file: &Path, folder: &Path) -> Result<(), String> {
    let told = |error| format!("{}: {error}", folder.display());
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let inputs = unpack(&bytes).ok_or_else(|| format!("{} is cut: fetch it anew", file.display()))?;
    std::fs::create_dir_all(folder).map_err(told)?;
    for (idx, input) in inputs.iter().enumerate() {
        std::fs::write(folder.join(format!("kept-{idx:04}")), input).map_err(told)?;
    }
    Ok(())
}

fn pack_into(folder: &Path, file: &Path) -> Result<(), String> {
    let told = |error| format!("{}: {error}", folder.display());
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(told)? {
        inputs.push(std::fs::read(entry.map_err(told)?.path()).map_err(told)?);
    }
    if inputs.is_empty() {
        return Err(format!("{} is empty: the corpus stays as it is", folder.display()));
    }
    std::fs::write(file, pack(inputs)).map_err(|error| format!("{}: {error}", file.display()))
}
