//! An issuer of tokens: its keys, which are read again and again.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;
use tollfree::gateway::{RateLimitedLog, aside};

use super::key_source::{FileState, KeySource, PATIENCE, trust};
use super::token::{KeySet, Token, TokenError};
use crate::config::JwtIssuer;
use crate::metrics::Metrics;

/// Tokens with unknown keys have the keys read again so often at most, and this long after that failed.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// After how long a server is tried again while there are no keys at all.
const FIRST_AGAIN: Duration = Duration::from_secs(1);
/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

static FAILED: RateLimitedLog = RateLimitedLog::new();

/// Why a token is not accepted.
pub(super) enum Unaccepted {
    /// What is wrong with it.
    Token(String),
    /// No keys are known yet.
    NoKeys,
}

/// How far reading keys is.
#[derive(Clone, Copy)]
struct Progress {
    /// Attempts that have ended.
    ended: u64,
    is_under_way: bool,
}

/// An issuer as a config has it.
pub(crate) struct Issuer {
    name: String,
    config: JwtIssuer,
    source: KeySource,
    tls: Option<Arc<ClientConfig>>,
    keys: ArcSwapOption<KeySet>,
    progress: watch::Sender<Progress>,
    wanted: Notify,
    /// When the last attempt began.
    attempted: Mutex<Instant>,
}

/// An issuer whose keys are followed, until this is dropped.
pub(super) struct Followed {
    issuer: Arc<Issuer>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    /// Must be called in a runtime.
    pub(super) fn new(issuer: Arc<Issuer>, metrics: Arc<Metrics>) -> Followed {
        let task = match issuer.source {
            KeySource::File(_) => tokio::spawn(issuer.clone().follow_file(metrics)),
            KeySource::Server(_) => tokio::spawn(issuer.clone().follow_server(metrics)),
        };
        Followed { issuer, task: task.abort_handle() }
    }

    pub(super) fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }
}

impl Issuer {
    /// Reads what is in files. Blocks the thread.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub(super) fn prepare(name: &str, config: &JwtIssuer) -> Result<Issuer, (&'static str, String)> {
        let source = KeySource::parse(&config.jwks).map_err(|problem| ("jwks", problem))?;
        let tls = config.ca.as_deref().map(trust).transpose().map_err(|problem| ("ca", problem))?;
        let keys = match source.read_file() {
            None => None,
            Some(read) => {
                let keys = read.and_then(|json| {
                    KeySet::parse(&json).map_err(|problem| format!("{}: {problem}", config.jwks))
                });
                Some(Arc::new(keys.map_err(|problem| ("jwks", problem))?))
            }
        };
        Ok(Issuer {
            name: name.to_owned(),
            config: config.clone(),
            source,
            tls,
            keys: ArcSwapOption::new(keys),
            progress: watch::Sender::new(Progress { ended: 0, is_under_way: false }),
            wanted: Notify::new(),
            attempted: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn config(&self) -> &JwtIssuer {
        &self.config
    }

    /// Checks a token. Where its key is not known, waits until the keys were read again, if they may be.
    pub(super) async fn check(&self, token: &str) -> Result<Arc<Token>, Unaccepted> {
        let mut progress = self.progress.subscribe();
        let before = *progress.borrow_and_update();
        match self.check_now(token) {
            Some(Ok(token)) => return Ok(token),
            Some(Err(TokenError::Wrong(problem))) => return Err(Unaccepted::Token(problem)),
            Some(Err(TokenError::UnknownKey)) | None => {}
        }
        if before.is_under_way || self.may_read_again() {
            self.wanted.notify_one();
            let next = progress.wait_for(|progress| progress.ended > before.ended);
            _ = tokio::time::timeout(PATIENCE, next).await;
        }
        match self.check_now(token) {
            Some(Ok(token)) => Ok(token),
            Some(Err(TokenError::Wrong(problem))) => Err(Unaccepted::Token(problem)),
            Some(Err(TokenError::UnknownKey)) => {
                Err(Unaccepted::Token("its issuer has no key by its name (kid)".into()))
            }
            None => Err(Unaccepted::NoKeys),
        }
    }

    /// None without keys.
    fn check_now(&self, token: &str) -> Option<Result<Arc<Token>, TokenError>> {
        let keys = self.keys.load();
        Some(keys.as_ref()?.check(token, &self.config))
    }

    fn may_read_again(&self) -> bool {
        let first = self.progress.borrow().ended == 0;
        first || self.attempted.lock().elapsed() >= READ_AGAIN
    }

    /// Reads the keys. Keys that can't be read leave the old ones.
    async fn read(&self, metrics: &Metrics) -> bool {
        *self.attempted.lock() = Instant::now();
        self.progress.send_modify(|progress| progress.is_under_way = true);
        let read = self.source.read(self.tls.as_ref()).await;
        let read = read.and_then(|json| {
            KeySet::parse(&json).map_err(|problem| format!("{}: {problem}", self.config.jwks))
        });
        let is_read = read.is_ok();
        match read {
            Ok(keys) => self.keys.store(Some(Arc::new(keys))),
            Err(problem) => {
                metrics.jwks_failures.inc();
                if let Some(unsaid) = FAILED.turn() {
                    let issuer = &*self.name;
                    tracing::error!(
                        issuer,
                        problem,
                        unsaid,
                        "the keys of an issuer can't be read; known ones stay"
                    );
                }
            }
        }
        self.progress.send_modify(|progress| {
            *progress = Progress { ended: progress.ended + 1, is_under_way: false };
        });
        is_read
    }

    async fn follow_server(self: Arc<Self>, metrics: Arc<Metrics>) {
        let refresh = Duration::from_millis(self.config.refresh_ms);
        loop {
            let is_read = self.read(&metrics).await;
            let pause = match (is_read, self.keys.load().is_some()) {
                (true, _) => refresh,
                (false, true) => refresh.min(READ_AGAIN),
                (false, false) => refresh.min(FIRST_AGAIN),
            };
            let end = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(end) => break,
                    () = self.wanted.notified() => if self.may_read_again() {
                        break;
                    },
                }
            }
        }
    }

    async fn follow_file(self: Arc<Self>, metrics: Arc<Metrics>) {
        let mut seen: Option<FileState> = None;
        loop {
            let own = self.clone();
            if let Ok(state) = aside(move || own.source.file_state()).await {
                let is_news = seen.is_some_and(|seen| seen != state);
                seen = Some(state);
                if is_news {
                    self.read(&metrics).await;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                // A token's key may be in a file that has just been written.
                () = self.wanted.notified() => if self.may_read_again() {
                    self.read(&metrics).await;
                },
            }
        }
    }
}
