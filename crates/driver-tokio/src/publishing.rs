//! Publishing what is staged, and ringing, as the [connection](tollfree_connection::Connection) decides; and what is left of it for the
//! driver.

use tollfree_connection::{Announced, Flushed, Staged};

use crate::core::Core;
use crate::registers::Registers;
use crate::shared::Socket;
use tollfree_os::clock::now_ns;

impl Core {
    /// Whether there is a driver that sees to what is left for later.
    #[inline]
    fn drives(&self) -> bool {
        !self.waiters.list.is_empty()
    }

    /// Makes everything staged visible, together with small frames that wait, and rings when the peer sleeps.
    #[inline]
    pub(crate) fn flush(&mut self, socket: &Socket) {
        let drives = self.drives();
        let flushed = self.connection.flush(&mut self.peer.on(socket), drives);
        if flushed != Flushed::default() {
            self.flushed(flushed);
        }
    }

    /// Leaves to the driver what a flush has left over.
    #[cold]
    fn flushed(&mut self, flushed: Flushed) {
        self.nudge |= flushed.rings_later;
        if flushed.lacks_room && !self.waiters.is_polled() && !self.arm() {
            // Room or records came while the doorbell was being armed: others may count on it, so the driver looks.
            self.nudge = true;
        }
    }

    /// Like [`flush`](Core::flush), but leaves the publishing to others where some will do it soon.
    /// [`Entered`](crate::shared::Entered) publishes what nobody would.
    pub(crate) fn flush_soon(&mut self, socket: &Socket) {
        let (look, drive) = (self.waiters.is_polled(), self.drives());
        match self.connection.staged(look, drive, now_ns) {
            Staged::Publish => self.flush(socket),
            Staged::Held => {}
            Staged::LeftToDriver => self.nudge = true,
        }
    }

    /// A round is over: what was gathered may go, and what is published may be rung for, unless that is to wait for more.
    /// Whether it is: the driver looks again when others have had their turn.
    pub(crate) fn round_ended(&mut self, socket: &Socket) -> bool {
        let drives = self.drives();
        let (waits, flushed) = self.connection.round_ended(&mut self.peer.on(socket), drives);
        self.flushed(flushed);
        waits
    }

    /// Publishes, and rings for, all that was to wait for more: nobody would see to it any more.
    pub(crate) fn hold_nothing(&mut self, socket: &Socket) {
        let flushed = self.connection.hold_nothing(&mut self.peer.on(socket));
        self.flushed(flushed);
    }

    /// Announces requests in another way from now on, and asks the peer to wait for them so.
    pub(crate) fn set_registers(&mut self, registers: &Registers, socket: &Socket) {
        self.hold_nothing(socket);
        let hold_ns = registers.hold.as_nanos().min(u128::from(u64::MAX)) as u64;
        self.connection.set_batches(registers.fixed_batch().map(u32::from), registers.ring_batch(), hold_ns);
        self.connection.give_hint(registers.asked().word());
    }

    /// What was announced to the peer so far.
    pub(crate) fn announced(&self) -> Announced {
        self.connection.announced()
    }

    /// Whether something is to be done when the lock is released.
    #[inline]
    pub(crate) fn has_duties(&self) -> bool {
        (self.connection.holds() && !self.holds_back())
            || self.nudge
            || !self.wakes.is_empty()
            || self.session().has_spent()
            || self.connection.wants_timer()
    }

    /// Whether somebody will publish soon.
    pub(crate) fn holds_back(&self) -> bool {
        self.connection.holds_back(self.waiters.is_polled())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use tollfree_session::{Ending, Outgoing};

    use crate::{Address, Attachment, Config, Listener, Opening, Registration, WaitPolicy};

    /// Frames that wait after each of a server's replies, while further calls are at hand. A handler takes so long.
    async fn held_by_handlers(busy: Duration) -> Vec<u32> {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("server.sock"));
        let mut listener = Listener::bind(&address, Config::default()).unwrap();
        let config = Config::default();
        let (client, server) = tokio::join!(Attachment::connect(&address, &config), listener.accept());
        let (client, server) = (client.unwrap(), server.unwrap());
        let mut calls = Vec::new();
        for _ in 0..20 {
            let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
            let mut outgoing = Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() };
            let mut opener = client.open();
            calls.push(poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap());
        }
        let mut held = Vec::new();
        let mut place = None;
        poll_fn(|cx| server.poll_accept(cx, &mut place)).await.unwrap();
        while let Some(mut accepted) = place.take() {
            std::thread::sleep(busy);
            let ending = Ending::Trailers { code: 0, block: Bytes::new() };
            let mut outgoing = Outgoing { ending: Some(ending), ..Outgoing::default() };
            assert!(accepted.reply(&mut outgoing).unwrap());
            held.push(server.shared.enter().unwrap().connection.held_count());
            if !server.try_accept(&mut place) {
                break;
            }
        }
        held
    }

    #[tokio::test]
    async fn a_reply_does_not_wait_for_those_of_handlers_that_take_long() {
        let held = held_by_handlers(Duration::ZERO).await;
        assert!(held.iter().any(|count| *count > 1), "{held:?}");
        let held = held_by_handlers(Duration::from_nanos(100_000)).await;
        assert!(held[1..].iter().all(|count| *count == 0), "{held:?}");
    }

    /// Frames that are staged and not published after each of ten calls that ten tasks begin in one round of the runtime; all
    /// arrive.
    async fn held_by_ten(wait: WaitPolicy) -> Vec<u32> {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("gateway.sock"));
        let config = Config { accepts: crate::Accepts::Backends, wait, ..Config::default() };
        let mut listener = Listener::bind(&address, config).unwrap();
        let registration = Registration::new("group", vec!["test.Echo".to_owned()]).unwrap();
        let backends = Config { wait: WaitPolicy::Park, ..Config::default() };
        let backends = Attachment::attach(&address, &backends, registration).await.unwrap();
        let gateway = Arc::new(listener.accept().await.unwrap());
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let gateway = gateway.clone();
                tokio::spawn(async move {
                    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
                    let mut outgoing = Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() };
                    let mut opener = gateway.open();
                    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
                    let held_count = gateway.shared.enter().unwrap().connection.held_count();
                    (stream, held_count)
                })
            })
            .collect();
        let mut held = Vec::new();
        let mut streams = Vec::new();
        for call in calls {
            let (stream, held_count) = call.await.unwrap();
            streams.push(stream);
            held.push(held_count);
        }
        for _ in 0..10 {
            let mut place = None;
            let accepted = poll_fn(|cx| backends.poll_accept(cx, &mut place));
            tokio::time::timeout(Duration::from_secs(20), accepted).await.expect("it is published").unwrap();
        }
        assert_eq!(gateway.shared.enter().unwrap().connection.held_count(), 0);
        held
    }

    #[tokio::test]
    async fn calls_of_one_round_are_published_together_by_a_gateway_that_does_not_ask_for_low_latency() {
        assert_eq!(held_by_ten(WaitPolicy::Park).await, (1..=10).collect::<Vec<_>>());
        assert!(held_by_ten(WaitPolicy::LowLatency).await.into_iter().all(|held_count| held_count <= 1));
    }
}
