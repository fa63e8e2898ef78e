//! Objects that lie in blocks of the gateway's while a process reads them: kept, let go of, and left behind.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_testkit::Process;
use tonic::transport::Channel;

use super::keeper::{DROP_HALF, KEEP, READ, body};
use super::places::{PATIENCE, Place};

const LEN: usize = 100_000;
/// What one process may hold, in objects of that length; a little less than fit.
const HELD_MAX: u32 = 160;
/// Objects that may be copied while the gateway's pool grows.
const GROWING: u64 = 30;

/// What a process has said of itself: its number, how many objects have come, and how many of them by ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    pid: u32,
    objects: u64,
    by_ref: u64,
}

struct Client(ProbeClient<Channel>, u32);

impl Client {
    async fn new(place: &Place) -> Client {
        let endpoint = tonic::transport::Endpoint::try_from(format!("http://{}", place.address())).unwrap();
        Client(ProbeClient::new(endpoint.connect().await.unwrap()), 0)
    }

    /// The next object, with what is to be done.
    async fn send(&mut self, what: u32) -> Said {
        self.1 += 1;
        self.call(Ask { body: body(self.1, LEN), lens: vec![what, self.1], ..Ask::default() }).await
    }

    async fn call(&mut self, ask: Ask) -> Said {
        self.try_call(ask).await.unwrap()
    }

    async fn try_call(&mut self, ask: Ask) -> Result<Said, tonic::Status> {
        let answer = self.0.unary(ask).await?.into_inner();
        let pid = u32::from_le_bytes(answer.body.try_into().unwrap());
        Ok(Said { pid, objects: answer.seen_len, by_ref: answer.seen_count.into() })
    }

    /// The same, as often as it takes until it has come to this process. Others read it.
    async fn send_to(&mut self, pid: u32, what: u32) -> Said {
        let began = Instant::now();
        loop {
            // A handler that is told for whom it is leaves others' alone.
            self.1 += 1;
            let lens = vec![what, self.1, pid];
            let ask = Ask { body: body(self.1, LEN), lens, ..Ask::default() };
            let said = self.call(ask).await;
            if said.pid == pid {
                return said;
            }
            assert!(began.elapsed() < PATIENCE, "no call comes to process {pid}");
        }
    }

    /// Calls until the process, or one of them, gets objects by ref.
    async fn until_placed(&mut self, process: &Process) -> Said {
        let began = Instant::now();
        loop {
            self.1 += 1;
            let ask = Ask { body: body(self.1, LEN), lens: vec![READ, self.1], ..Ask::default() };
            // A call may have gone to a process that was killed just before.
            let said = match self.try_call(ask).await {
                Err(status) if status.code() == tonic::Code::Unavailable => Err(status),
                said => Ok(said.unwrap()),
            };
            match said {
                Ok(said) if said.pid == process.pid().as_raw_nonzero().get() as u32 && said.by_ref > 0 => {
                    return said;
                }
                said => assert!(began.elapsed() < PATIENCE, "no object came by ref: {said:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_read_where_they_lie_and_let_go_of_in_any_order() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let process = place.start_keeper();
    let mut client = Client::new(&place).await;
    let before = client.until_placed(&process).await;
    let mut sent = 0;
    for _ in 0..6 {
        for _ in 0..HELD_MAX / 4 {
            client.send(KEEP).await;
        }
        client.send(DROP_HALF).await;
        client.send(DROP_HALF).await;
        sent += u64::from(HELD_MAX / 4) + 2;
    }
    let after = client.send(READ).await;
    // More than the process may hold at a time: what it let go of was used again.
    assert!(sent > u64::from(HELD_MAX), "{sent} objects");
    assert_eq!(after.objects - before.objects, sent + 1);
    let by_ref = after.by_ref - before.by_ref;
    assert!(by_ref + GROWING >= sent, "{by_ref} of {sent} by ref");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_gives_nothing_back_gets_copies_and_others_go_on() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let greedy = place.start_keeper();
    let mut client = Client::new(&place).await;
    let before = client.until_placed(&greedy).await;
    let mut last = before;
    for _ in 0..2 * HELD_MAX {
        last = client.send(KEEP).await;
    }
    let by_ref = last.by_ref - before.by_ref;
    assert_eq!(last.objects - before.objects, u64::from(2 * HELD_MAX), "copies are objects, too");
    let held = u64::from(HELD_MAX);
    assert!((held - GROWING..held * 5 / 4).contains(&by_ref), "{by_ref} by ref");
    let other = place.start_keeper();
    let others = client.until_placed(&other).await;
    let mut said = others;
    let mut count = 0;
    while count < 50 {
        let next = client.send(READ).await;
        if next.pid == others.pid {
            (said, count) = (next, count + 1);
        }
    }
    let by_ref = said.by_ref - others.by_ref;
    assert!(said.objects - others.objects == 50 && by_ref >= 40, "{by_ref} of 50 by ref");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_leaves_its_blocks_to_others() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let mut client = Client::new(&place).await;
    // Together more than all processes of a group may hold. Some stand still when they are killed.
    for round in 0..6 {
        let process = place.start_keeper();
        let before = client.until_placed(&process).await;
        let mut last = before;
        for _ in 0..HELD_MAX {
            last = client.send(KEEP).await;
        }
        let by_ref = last.by_ref - before.by_ref;
        assert!(by_ref + GROWING >= u64::from(HELD_MAX), "{by_ref} of {HELD_MAX} by ref");
        if round % 2 == 0 {
            process.signal(Signal::STOP);
        }
        drop(process);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_keeps_its_blocks_and_others_are_called() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let stopped = place.start_keeper();
    let mut client = Client::new(&place).await;
    client.until_placed(&stopped).await;
    for _ in 0..HELD_MAX / 2 {
        client.send(KEEP).await;
    }
    let other = place.start_keeper();
    let others = client.until_placed(&other).await;
    stopped.signal(Signal::STOP);
    let mut calls: Vec<_> = (0..4).map(|_| tokio::spawn(late(client.0.clone()))).collect();
    let began = Instant::now();
    let mut answered = 0;
    while answered < 100 {
        let ask = Ask { body: body(7, LEN), lens: vec![READ, 7], ..Ask::default() };
        let call = tokio::time::timeout(Duration::from_secs(1), client.0.unary(ask)).await;
        answered += usize::from(call.is_ok_and(|answer| answer.is_ok()));
        assert!(began.elapsed() < PATIENCE, "{answered} calls were answered");
    }
    stopped.signal(Signal::CONT);
    for call in calls.drain(..) {
        call.await.unwrap();
    }
    // It looks at all that it keeps with each call.
    let began = Instant::now();
    while client.send(READ).await.pid == others.pid {
        assert!(began.elapsed() < PATIENCE, "it is never called again");
    }
}

/// What a stopped process holds is its own until it lets go: others get theirs by ref meanwhile, and it gets copies when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_process_holds_stays_counted_until_it_lets_go() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let stopped = place.start_keeper();
    let mut client = Client::new(&place).await;
    client.until_placed(&stopped).await;
    let mut full = client.send(KEEP).await;
    for _ in 0..2 * HELD_MAX {
        full = client.send(KEEP).await;
    }
    let other = place.start_keeper();
    client.until_placed(&other).await;
    stopped.signal(Signal::STOP);
    let (mut by_ref, mut calls, began) = (0, Vec::new(), Instant::now());
    while by_ref < 100 {
        let mut at_others = client.0.clone();
        let ask = Ask { body: body(7, LEN), lens: vec![READ, 7], ..Ask::default() };
        // Those at the stopped process are answered when it goes on.
        let mut call = tokio::spawn(async move { at_others.unary(ask).await });
        match tokio::time::timeout(Duration::from_millis(200), &mut call).await {
            Ok(answer) => by_ref = answer.unwrap().unwrap().get_ref().seen_count,
            Err(_) => calls.push(call),
        }
        assert!(began.elapsed() < PATIENCE, "{by_ref} by ref at the other");
    }
    stopped.signal(Signal::CONT);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let pid = full.pid;
    let mut said = client.send_to(pid, READ).await;
    for _ in 0..20 {
        said = client.send_to(pid, READ).await;
    }
    assert!(said.objects >= full.objects + 20, "{said:?} after {full:?}");
    assert_eq!(said.by_ref, full.by_ref, "it has its share");
    // Half of what it keeps are copies.
    for _ in 0..2 {
        client.send_to(pid, DROP_HALF).await;
    }
    let began = Instant::now();
    while client.send_to(pid, READ).await.by_ref < full.by_ref + 20 {
        assert!(began.elapsed() < PATIENCE, "what it let go of is not used again");
    }
}

/// Processes that together hold all that a group may: the next one's objects are copied, each as a whole, and no call waits or fails. One
/// that ends makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_group_has_no_room_objects_are_copied_whole_and_nothing_waits() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let mut client = Client::new(&place).await;
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let process = place.start_keeper();
        let pid = client.until_placed(&process).await.pid;
        greedy.push((process, pid));
    }
    // By turns to all of them.
    for _ in 0..8 * HELD_MAX {
        client.send(KEEP).await;
    }
    let late = place.start_keeper();
    let pid = late.pid().as_raw_nonzero().get() as u32;
    let mut said = client.send_to(pid, READ).await;
    while said.objects < 50 {
        said = client.send_to(pid, READ).await;
    }
    assert!(said.by_ref <= 2, "all of it is held: {said:?}");
    drop(greedy.pop());
    let began = Instant::now();
    while client.send_to(pid, READ).await.by_ref < said.by_ref + 20 {
        assert!(began.elapsed() < PATIENCE, "what the killed process held is not used again");
    }
    for (_, pid) in &greedy {
        // It compares all that it keeps.
        client.send_to(*pid, READ).await;
    }
}

/// A call that may be at the process that is stopped: answered when it goes on.
async fn late(mut client: ProbeClient<Channel>) {
    let ask = Ask { body: body(9, LEN), lens: vec![READ, 9], ..Ask::default() };
    client.unary(ask).await.unwrap();
}
