//! Processes that come and go in a loop, or come and say nothing: few lines in the log, and nobody else waits for them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tracing_subscriber::fmt::MakeWriter;

use crate::lab::{Lab, workers_of};
use crate::raw;

/// Gathers the log of one thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// How many of the shepherd's lines about business processes have all of these words.
    fn count(&self, words: &[&str]) -> usize {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let places = ["tollfree_shepherd::business", "tollfree_shepherd::metrics"];
        let ours = text.lines().filter(|line| places.iter().any(|place| line.contains(place)));
        ours.filter(|line| words.iter().all(|word| line.contains(word))).count()
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

#[tokio::test]
async fn a_process_that_comes_and_goes_in_a_loop_writes_few_lines_and_hides_no_other() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let lab = Lab::start("[groups.loud]\n[groups.calm]\n").await;
    let began = Instant::now();
    for _ in 0..150 {
        // Whom the shepherd refuses may see no more than a socket that is closed.
        _ = raw::try_attach(&lab, "loud").await;
        _ = raw::try_attach(&lab, "unknown").await;
    }
    // They are let in, or refused, one after the other.
    let calm = lab.attach("calm").await;
    lab.until_figure(&workers_of("loud"), |count| count == 0.0).await;
    calm.stop().await;
    lab.until_figure(&workers_of("calm"), |count| count == 0.0).await;
    assert!(lab.refused("attach").await >= 100.0);
    // Ten at once, and one a second.
    let most = 11 + began.elapsed().as_secs() as usize;
    for words in
        [&["attached", "group=\"loud\""][..], &["gone"], &["a process was refused something", "attach"]]
    {
        // One more of those that leave is the calm one.
        let count = log.count(words);
        assert!((1..=most + 1).contains(&count), "{words:?}: {count} lines, {most} at most");
    }
    assert_eq!(log.count(&["attached", "group=\"calm\""]), 1);
}

#[tokio::test]
async fn silent_and_crowding_processes_delay_nobody_who_attaches() {
    let lab = Lab::start("[groups.loud]\n[groups.calm]\n").await;
    let path = lab.file("business.sock");
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let crowd = async {
        let mut kept = Vec::new();
        loop {
            kept.extend(raw::try_attach(&lab, "loud").await);
            kept.push(raw::via(&lab, "group:loud").await);
            kept.truncate(20);
            tokio::task::yield_now().await;
        }
    };
    let calm = async {
        for _ in 0..5 {
            lab.attach("calm").await.stop().await;
            lab.until_figure(&workers_of("calm"), |count| count == 0.0).await;
        }
    };
    tokio::select! {
        () = crowd => unreachable!("it has no end"),
        attached = tokio::time::timeout(Duration::from_secs(60), calm) => attached.expect("they are let in"),
    }
    // Who says nothing is not what they have waited for: its time is not over.
    let waits = silent.iter_mut().any(|silent| {
        let mut byte = [0];
        let mut read = std::pin::pin!(silent.read(&mut byte));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        read.as_mut().poll(&mut cx).is_pending()
    });
    assert!(waits, "all who say nothing were sent away meanwhile");
}
