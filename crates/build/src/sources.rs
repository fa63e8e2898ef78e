//! Where `.proto` files are read from.

use std::path::Path;

use protox::Error;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

/// Include directories, and behind them protobuf's own files that the parser brings along. Those also stand in for such files of
/// an include directory that the parser can't read: newer ones use what has come since.
pub(crate) struct Sources {
    includes: ChainFileResolver,
    bundled: GoogleFileResolver,
}

impl Sources {
    pub(crate) fn new(includes: &[impl AsRef<Path>]) -> Sources {
        let mut chain = ChainFileResolver::new();
        for include in includes {
            chain.add(IncludeFileResolver::new(include.as_ref().to_owned()));
        }
        Sources { includes: chain, bundled: GoogleFileResolver::new() }
    }
}

impl FileResolver for Sources {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.includes.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, Error> {
        match self.includes.open_file(name) {
            Err(error) if error.is_parse() || error.is_file_not_found() => {
                self.bundled.open_file(name).map_err(|_| error)
            }
            done => done,
        }
    }
}
