//! What is read only when somebody asks: this process's waiting, its sessions' rings, and whom it has refused.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tollfree_driver_tokio::{Attachment, Refusals, peer_deaths, waits};

/// The sessions of a channel; `None`: it is gone.
pub(crate) type SessionsOf = Box<dyn Fn() -> Option<Vec<Arc<Attachment>>> + Send + Sync>;
/// Calls that a server has turned away.
pub(crate) type Shed = Box<dyn Fn() -> u64 + Send + Sync>;

/// What is looked at.
#[derive(Default)]
pub(super) struct Watched {
    sessions: Mutex<Vec<Weak<Attachment>>>,
    channels: Mutex<Vec<SessionsOf>>,
    /// By what is refused.
    clients: Mutex<Vec<Refusals>>,
    calls: Mutex<Vec<Shed>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Watched {
    pub(super) fn session(&self, session: &Arc<Attachment>) {
        let mut sessions = self.sessions.lock();
        if sessions.len() == sessions.capacity() {
            sessions.retain(|session| session.strong_count() > 0);
        }
        sessions.push(Arc::downgrade(session));
    }

    pub(super) fn channel(&self, sessions_of: SessionsOf) {
        let mut channels = self.channels.lock();
        if channels.len() == channels.capacity() {
            channels.retain(|sessions_of| sessions_of().is_some());
        }
        channels.push(sessions_of);
    }

    pub(super) fn clients(&self, refusals: Refusals) {
        self.clients.lock().push(refusals);
    }

    pub(super) fn calls(&self, shed: Shed) {
        self.calls.lock().push(shed);
    }

    /// All sessions that are open: how many, what lies in their rings, and what could.
    fn rings(&self) -> (u64, u64, u64) {
        let mut sessions: Vec<Arc<Attachment>> =
            self.sessions.lock().iter().filter_map(Weak::upgrade).collect();
        sessions.extend(self.channels.lock().iter().filter_map(|sessions_of| sessions_of()).flatten());
        let rings = sessions.iter().filter_map(|session| session.backlog());
        rings.fold((0, 0, 0), |(count, used, all), ring| {
            (count + 1, used + ring.unread_len, all + ring.ring_len)
        })
    }
}

/// One series for each reason.
struct Reason(&'static str);

impl prometheus_client::encoding::EncodeLabelSet for Reason {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        prometheus_client::encoding::EncodeLabel::encode(&("reason", self.0), encoder.encode_label())
    }
}

impl Collector for Watched {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let waits = waits();
        let mut all = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn Encoded| {
            metric.encode_into(&mut encoder, name, help, unit)
        };
        let looked = ConstCounter::new(waits.looked.as_secs_f64());
        all("tollfree_looked", "Time spent looking for what peers send", Some(&Unit::Seconds), &looked)?;
        let counts = [
            ("tollfree_parked", "Times that a task which had looked went to sleep", waits.parked),
            ("tollfree_woken", "Times that this process was woken by a peer", waits.woken),
            ("tollfree_rung", "Times that this process woke a peer", waits.rung),
            ("tollfree_peer_deaths", "Sessions whose peer has gone without a word", peer_deaths()),
        ];
        for (name, help, count) in counts {
            all(name, help, None, &ConstCounter::new(count))?;
        }
        let (count, used, len) = self.rings();
        all("tollfree_sessions", "Sessions that are open", None, &ConstGauge::new(count))?;
        let bytes = Some(&Unit::Bytes);
        all(
            "tollfree_ring_used",
            "What peers have not read of this side's rings",
            bytes,
            &ConstGauge::new(used),
        )?;
        all("tollfree_ring", "Lengths of this side's rings", bytes, &ConstGauge::new(len))?;
        let clients = self.clients.lock().iter().map(Refusals::count).sum();
        let calls = self.calls.lock().iter().map(|shed| shed()).sum();
        let help = "Whom servers have turned away: clients at their sockets, calls beyond their limits";
        let refusals = Refused([("client", clients), ("call", calls)]);
        all("tollfree_refusals", help, None, &refusals)
    }
}

/// Something that can be written, whatever its type.
trait Encoded {
    fn encode_into(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
    ) -> Result<(), std::fmt::Error>;
}

impl<M: EncodeMetric> Encoded for M {
    fn encode_into(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
    ) -> Result<(), std::fmt::Error> {
        self.encode(encoder.encode_descriptor(name, help, unit, self.metric_type())?)
    }
}

/// Counts by reason.
struct Refused([(&'static str, u64); 2]);

impl EncodeMetric for Refused {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::MetricEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        for (reason, count) in self.0 {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_family(&Reason(reason))?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> prometheus_client::metrics::MetricType {
        prometheus_client::metrics::MetricType::Counter
    }
}
