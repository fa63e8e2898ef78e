//! What can be changed of a session while it runs: how requests are announced to a process that has attached, and how that waits
//! for them. Dagger's soft reconfiguration (section 3.4).
//!
//! # Who does what
//! The gateway's side holds requests back, publishes them and rings ([`crate::publishing`]). How the process waits is its own
//! backends: it is asked by a word in the gateway's control page ([`tollfree_connection::WaitHints`]). It says by its `waiting` word whether it
//! looks, and a sender that finds it asleep rings, in every mode: so a process that does otherwise than it was asked, or is changed
//! over at any moment, loses no request.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tollfree_connection::constants::BATCH_MAX;
use tollfree_layout::control::{Asked, AskedMode};
use tollfree_layout::limits::ASKED_SPIN_US_MAX;

/// The longest that a request may wait for others.
const HOLD_US_MAX: u32 = 10_000;

/// A value that a register can't have, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RegisterError(String);

fn wrong<T>(text: &str, instead: &str) -> Result<T, RegisterError> {
    Err(RegisterError(format!("\"{text}\" is out of bounds: write {instead}")))
}

fn count(text: &str) -> Option<u8> {
    text.parse().ok().filter(|count| (1..=BATCH_MAX).contains(count))
}

/// How many requests are published together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// Those of one round of the runtime, up to 64; a request that comes alone is published at once.
    #[default]
    Auto,
    /// So many, from 1 to 64, or those that there are when the first of them has waited for as long as
    /// [`hold`](Registers::hold).
    Fixed(u8),
}

impl FromStr for Batch {
    type Err = RegisterError;
    fn from_str(text: &str) -> Result<Batch, RegisterError> {
        match (text, count(text)) {
            ("auto", _) => Ok(Batch::Auto),
            (_, Some(count)) => Ok(Batch::Fixed(count)),
            _ => wrong(text, "auto, or 1 to 64"),
        }
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Batch::Auto => f.pad("auto"),
            Batch::Fixed(count) => fmt::Display::fmt(count, f),
        }
    }
}

/// How long a process looks for requests before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spin {
    /// As the mode says: as it has learnt ([`DoorbellMode::Auto`]), not at all, or for 10 ms.
    #[default]
    Auto,
    /// So many microseconds, up to a second.
    Micros(u32),
}

impl FromStr for Spin {
    type Err = RegisterError;
    fn from_str(text: &str) -> Result<Spin, RegisterError> {
        match (text, text.parse().ok().filter(|us| *us <= ASKED_SPIN_US_MAX)) {
            ("auto", _) => Ok(Spin::Auto),
            (_, Some(us)) => Ok(Spin::Micros(us)),
            _ => wrong(text, "auto, or 0 to 1000000"),
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spin::Auto => f.pad("auto"),
            Spin::Micros(us) => fmt::Display::fmt(us, f),
        }
    }
}

/// How a process learns of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DoorbellMode {
    /// It looks or sleeps as it has learnt to, and is rung when it sleeps.
    #[default]
    Auto,
    /// Each request is published by itself, in its lines of the ring, and it looks for them one by one.
    Inline,
    /// It sleeps as soon as there is nothing, and each publication rings it.
    Doorbell,
    /// The same, and one ring is for so many requests, from 1 to 64, or for those that there are when the first of them has
    /// waited for as long as [`hold`](Registers::hold).
    DoorbellBatch(u8),
    /// It looks, and takes up to so many requests, from 1 to 64, in one look.
    Coherent(u8),
}

impl FromStr for DoorbellMode {
    type Err = RegisterError;
    fn from_str(text: &str) -> Result<DoorbellMode, RegisterError> {
        let (mode, number) = text.split_once(':').map_or((text, None), |(mode, number)| (mode, Some(number)));
        match (mode, number, number.and_then(count)) {
            ("auto", None, _) => Ok(DoorbellMode::Auto),
            ("inline", None, _) => Ok(DoorbellMode::Inline),
            ("doorbell", None, _) => Ok(DoorbellMode::Doorbell),
            ("doorbell-batch", _, Some(count)) => Ok(DoorbellMode::DoorbellBatch(count)),
            ("coherent", _, Some(count)) => Ok(DoorbellMode::Coherent(count)),
            _ => wrong(text, "auto, inline, doorbell, doorbell-batch:N or coherent:N, with N from 1 to 64"),
        }
    }
}

impl fmt::Display for DoorbellMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoorbellMode::Auto => f.pad("auto"),
            DoorbellMode::Inline => f.pad("inline"),
            DoorbellMode::Doorbell => f.pad("doorbell"),
            DoorbellMode::DoorbellBatch(count) => f.pad(&format!("doorbell-batch:{count}")),
            DoorbellMode::Coherent(count) => f.pad(&format!("coherent:{count}")),
        }
    }
}

/// How requests reach a process that has attached ([`Attachment::set_registers`](crate::Attachment::set_registers)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registers {
    /// How many are published together.
    pub batch: Batch,
    /// How long one waits at most for others, where a number of them is fixed: 10 ms at most.
    pub hold: Duration,
    /// How long the process looks before it sleeps.
    pub spin: Spin,
    /// How it learns of them.
    pub doorbell: DoorbellMode,
    /// From so many requests a second on it looks instead of sleeping, whatever `doorbell` says. 0: never for that.
    pub poll_load: u32,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers {
            batch: Batch::default(),
            hold: Duration::from_micros(50),
            spin: Spin::default(),
            doorbell: DoorbellMode::default(),
            poll_load: 0,
        }
    }
}

impl Registers {
    /// With another time that a request may wait for others, in microseconds.
    ///
    /// # Errors
    /// It is longer than 10 ms.
    pub fn with_hold_us(self, us: u32) -> Result<Registers, RegisterError> {
        if us > HOLD_US_MAX {
            return wrong(&us.to_string(), "0 to 10000");
        }
        Ok(Registers { hold: Duration::from_micros(us.into()), ..self })
    }

    /// How many requests are published together, if that is fixed.
    pub(crate) fn fixed_batch(&self) -> Option<u8> {
        match (self.doorbell, self.batch) {
            (DoorbellMode::Inline, _) => Some(1),
            (_, Batch::Fixed(count)) => Some(count.clamp(1, BATCH_MAX)),
            (_, Batch::Auto) => None,
        }
    }

    /// How many requests share a doorbell.
    pub(crate) fn ring_batch(&self) -> u32 {
        match self.doorbell {
            DoorbellMode::DoorbellBatch(count) => count.clamp(1, BATCH_MAX).into(),
            _ => 1,
        }
    }

    /// What the process is asked for.
    pub(crate) fn asked(&self) -> Asked {
        let (mode, look) = match self.doorbell {
            DoorbellMode::Auto => (AskedMode::Free, 0),
            DoorbellMode::Doorbell | DoorbellMode::DoorbellBatch(_) => (AskedMode::Sleep, 0),
            DoorbellMode::Inline => (AskedMode::Look, 1),
            DoorbellMode::Coherent(count) => (AskedMode::Look, count.clamp(1, BATCH_MAX)),
        };
        let spin_us = match self.spin {
            Spin::Auto => None,
            Spin::Micros(us) => Some(us),
        };
        Asked { mode, look, spin_us, poll_load: self.poll_load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_there_and_back_and_nonsense_is_refused_in_words() {
        for text in ["auto", "inline", "doorbell", "doorbell-batch:1", "doorbell-batch:64", "coherent:4"] {
            assert_eq!(text.parse::<DoorbellMode>().unwrap().to_string(), text);
        }
        for text in ["auto", "1", "64"] {
            assert_eq!(text.parse::<Batch>().unwrap().to_string(), text);
        }
        for text in ["auto", "0", "1000000"] {
            assert_eq!(text.parse::<Spin>().unwrap().to_string(), text);
        }
        let modes = [
            "",
            "bell",
            "inline:3",
            "auto:1",
            "coherent",
            "coherent:0",
            "coherent:65",
            "doorbell:3",
            "coherent:-1",
        ];
        for text in modes.into_iter().chain(["doorbell-batch:999999999999999999999", "coherent:4:4"]) {
            let error = text.parse::<DoorbellMode>().expect_err(text).to_string();
            assert!(error.contains(&format!("\"{text}\"")) && error.contains("1 to 64"), "{error}");
        }
        for text in ["0", "65", "-1", "many", "256"] {
            assert!(text.parse::<Batch>().expect_err(text).to_string().contains("1 to 64"));
        }
        for text in ["-1", "1000001", "99999999999", "long"] {
            assert!(text.parse::<Spin>().expect_err(text).to_string().contains("1000000"));
        }
        assert!(Registers::default().with_hold_us(10_001).unwrap_err().to_string().contains("10000"));
        assert_eq!(Registers::default().with_hold_us(0).unwrap().hold, Duration::ZERO);
    }

    #[test]
    fn each_mode_asks_for_what_it_says() {
        let asked = |doorbell| Registers { doorbell, ..Registers::default() }.asked();
        assert_eq!(asked(DoorbellMode::Auto).word(), 0, "as a session without a word");
        assert_eq!(asked(DoorbellMode::Doorbell).mode, AskedMode::Sleep);
        assert_eq!(asked(DoorbellMode::DoorbellBatch(11)).mode, AskedMode::Sleep);
        let inline = asked(DoorbellMode::Inline);
        assert_eq!((inline.mode, inline.look), (AskedMode::Look, 1));
        let coherent = asked(DoorbellMode::Coherent(4));
        assert_eq!((coherent.mode, coherent.look), (AskedMode::Look, 4));
        let inline =
            Registers { doorbell: DoorbellMode::Inline, batch: Batch::Fixed(9), ..Registers::default() };
        assert_eq!(inline.fixed_batch(), Some(1), "one by one, whatever the batch says");
    }
}
