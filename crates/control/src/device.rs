//! How requests are announced to the backend connections of a group.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollfree::gateway::{Batch, DoorbellMode, Registers, Spin};

/// A value that is a number or a word, as `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T: Display> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_string();
        match text.parse::<u64>() {
            Ok(number) => serializer.serialize_u64(number),
            Err(_) => serializer.serialize_str(&text),
        }
    }
}

struct OfText<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for OfText<T> {
    type Value = Word<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a word")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Word<T>, E> {
        text.parse().map(Word).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Word<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Word<T>, E> {
        self.visit_str(&number.to_string())
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<T>, D::Error> {
        deserializer.deserialize_any(OfText(PhantomData))
    }
}

/// How requests are announced to the backend connections of a group, and how these wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Device {
    /// Requests that are published together: `auto`, or 1 to 64.
    pub batch: Word<Batch>,
    /// How backend connections learn of requests: `auto`, `inline`, `doorbell`, `doorbell-batch:N` or `coherent:N`.
    pub doorbell: Word<DoorbellMode>,
    /// How long a backend connection looks before it sleeps, in microseconds: `auto`, or 0 to 1,000,000.
    pub spin_us: Word<Spin>,
    /// How long a request waits at most for others, where a number of them is fixed, in microseconds: up to 10,000.
    pub hold_us: u32,
    /// From so many requests a second on, a backend connection looks instead of sleeping. 0: never for that.
    pub poll_load: u32,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            batch: Word::default(),
            doorbell: Word::default(),
            spin_us: Word::default(),
            hold_us: Registers::default().hold.as_micros() as u32,
            poll_load: 0,
        }
    }
}

impl Device {
    /// What a session is told. `hold_us` has been checked.
    pub fn registers(&self) -> Registers {
        let mut registers = Registers::default();
        registers.batch = self.batch.0;
        registers.doorbell = self.doorbell.0;
        registers.spin = self.spin_us.0;
        registers.poll_load = self.poll_load;
        registers.with_hold_us(self.hold_us).unwrap_or(registers)
    }
}
