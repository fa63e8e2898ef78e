//! What a thread logs.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// Gathers the log of one thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Gathers what this thread logs, from INFO on, while the second value is there.
    pub fn begin() -> (Log, tracing::subscriber::DefaultGuard) {
        // While a program has one subscriber alone, tracing asks the thread that comes to a line first, and no other, whether anybody wants it. In a
        // test program that is often a thread of another test, which has no subscriber.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| tracing_subscriber::fmt().with_writer(io::sink).finish().into());
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// All lines so far.
    ///
    /// # Panics
    /// A thread has panicked while it logged.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}
