//! What a program gets that was built for another system than Linux: HTTP/2 in all kinds of calls, and one error for all else.
//! Built on Linux with `RUSTFLAGS="--cfg tollfree_http2_only"` (`make platforms`); in any other build there is nothing here.
#![cfg(tollfree_http2_only)]
#![forbid(unsafe_code)]

mod calls;
mod refusals;
mod unix_files;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Two addresses that work here: a port that was free, and a socket file in a directory.
fn addresses(directory: &Path) -> [String; 2] {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    [format!("http://127.0.0.1:{port}"), format!("unix:{}", directory.join("s.sock").display())]
}

/// Connects again until the server is there: its port or file shows that to nobody but who connects.
fn until_served<C, E: std::fmt::Debug>(connect: impl Fn() -> Result<C, E>) -> C {
    let began = Instant::now();
    loop {
        match connect() {
            Ok(connected) => return connected,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{error:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
