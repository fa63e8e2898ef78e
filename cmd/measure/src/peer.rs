//! A process that this program starts from its own executable, and how the two talk.
//!
//! The starter writes lines of JSON to the peer's standard input and reads lines of JSON from its standard output.
//! The pipe is also the leash: when it closes, because the starter is done with the peer or has died in any way, the
//! peer ends. Peers are in a process group of their own, so that Ctrl-C reaches the starter alone and the end has one
//! author.

use std::io::{self, BufRead, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a peer may take to end after its pipe closed before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a peer is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It could not be started.
    #[error("cannot start the {role} process: {source}")]
    Start {
        /// Which one.
        role: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended while something was expected of it.
    #[error("the {role} process ended early ({how}); its final status, if any, are above")]
    Ended {
        /// Which one.
        role: &'static str,
        /// Its exit status.
        how: String,
    },
    /// It said nothing for too long.
    #[error("the {role} process gave no answer within {} s", within.as_secs())]
    Silent {
        /// Which one.
        role: &'static str,
        /// How long it had.
        within: Duration,
    },
    /// It reported a failure.
    #[error("{role}: {words}")]
    Failed {
        /// Which one.
        role: &'static str,
        /// What it reported.
        words: String,
    },
    /// It said something else than what was agreed.
    #[error("the {role} process answered something unexpected: {source}")]
    Garbled {
        /// Which one.
        role: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A running peer, seen from its starter. Killed when dropped.
#[derive(Debug)]
pub struct Peer {
    role: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts this executable again with `arguments`, with `settings` added to its environment, and gives it its first
    /// order.
    ///
    /// # Errors
    /// [`PeerError::Start`], or [`PeerError::Ended`] when it died at once.
    pub async fn start(
        role: &'static str,
        arguments: &[&str],
        settings: &[(&str, &str)],
        order: &impl Serialize,
    ) -> Result<Self, PeerError> {
        let mut child = Command::new("/proc/self/exe")
            .args(arguments)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|source| PeerError::Start { role, source })?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(PeerError::Start { role, source: io::Error::other("its pipes are missing") });
        };
        let answers = BufReader::new(answers).lines();
        let mut peer = Self { role, child, orders, answers };
        peer.say(order).await?;
        Ok(peer)
    }

    /// The peer's process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// [`PeerError::Ended`] when it no longer listens.
    pub async fn say(&mut self, order: &impl Serialize) -> Result<(), PeerError> {
        let mut line = serde_json::to_vec(order).expect("orders are plain data");
        line.push(b'\n');
        match self.orders.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Waits for its next line.
    ///
    /// # Errors
    /// Each kind of [`PeerError`] but `Start`.
    pub async fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, PeerError> {
        let role = self.role;
        match tokio::time::timeout(within, self.answers.next_line()).await {
            Err(_) => Err(PeerError::Silent { role, within }),
            Ok(Err(_) | Ok(None)) => Err(self.ended().await),
            Ok(Ok(Some(line))) => match serde_json::from_str::<Answer<T>>(&line) {
                Ok(Answer::Done(said)) => Ok(said),
                Ok(Answer::Failed(words)) => Err(PeerError::Failed { role, words }),
                Err(source) => Err(PeerError::Garbled { role, source }),
            },
        }
    }

    /// Lets it go: closes the pipe and waits until it is gone, by force if need be.
    pub async fn stop(self) {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        if tokio::time::timeout(FAREWELL, child.wait()).await.is_err() {
            // Only fails when it has just ended by itself.
            let _ = child.kill().await;
        }
    }

    async fn ended(&mut self) -> PeerError {
        let how = match tokio::time::timeout(FAREWELL, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its pipes but still runs".to_owned(),
        };
        PeerError::Ended { role: self.role, how }
    }
}

/// What a peer says.
#[derive(Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer<T> {
    Done(T),
    Failed(String),
}

/// The starter, seen from the peer.
#[derive(Debug)]
pub struct Starter {
    lines: mpsc::Receiver<String>,
}

impl Starter {
    /// Listens to the starter from now on. The process ends by itself, with success, when the starter is gone.
    pub fn listen() -> Self {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                // Nobody receives any more: only the end of the pipe still matters.
                let _ = sender.send(line);
            }
            std::process::exit(0);
        });
        Self { lines }
    }

    /// Waits for the starter's next line.
    ///
    /// # Errors
    /// In words, when the line is not what was agreed.
    pub fn hear<T: DeserializeOwned>(&self) -> Result<T, String> {
        let line = self.lines.recv().map_err(|_| "the starter is gone".to_owned())?;
        serde_json::from_str(&line).map_err(|error| format!("an order that makes no sense: {error}"))
    }

    /// The starter's next line, if it has come.
    ///
    /// # Errors
    /// In words, when the line is not what was agreed.
    pub fn try_hear<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        let line = self.lines.try_recv().ok();
        let heard = line.map(|line| serde_json::from_str(&line)).transpose();
        heard.map_err(|error| format!("an order that makes no sense: {error}"))
    }

    /// Answers.
    pub fn say(&self, answer: impl Serialize) {
        self.write(&Answer::Done(answer));
    }

    /// Reports a failure.
    pub fn fail(&self, error: &dyn std::error::Error) {
        let mut words = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !words.contains(&more) {
                words = format!("{words}: {more}");
            }
            cause = error.source();
        }
        self.write(&Answer::<()>::Failed(words));
    }

    /// Does nothing more until the starter is gone.
    pub fn wait_for_the_end(self) -> ! {
        loop {
            std::thread::park();
        }
    }

    fn write(&self, answer: &impl Serialize) {
        let mut line = serde_json::to_vec(answer).expect("answers are plain data");
        line.push(b'\n');
        let mut out = io::stdout().lock();
        // A starter that no longer reads has closed our input as well, which ends this process.
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
