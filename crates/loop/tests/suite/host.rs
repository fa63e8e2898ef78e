//! A loop within a host's own: its descriptor, timers, other threads, and what it costs while nothing happens.

use std::time::{Duration, Instant};

use tollfree_loop::{CallError, Event, EventLoop, LoopConfig};
use tollfree_os::fd::AsFd;
use tollfree_os::rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollfree_os::rustix::time::{ClockId, clock_gettime};

use tollfree_testkit::fork;

use crate::support::{Both, echoes, next, place, unary};

/// Sleeps as a host does, on the loop's descriptor. Whether it has something.
fn sleeps(events: &EventLoop, most: Duration) -> bool {
    let fd = events.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    poll(&mut fds, Some(&most)).unwrap() > 0
}

#[test]
fn a_host_that_sleeps_on_the_descriptor_misses_nothing() {
    let (_directory, address) = place();
    let server = std::thread::spawn({
        let address = address.clone();
        move || {
            let mut events = EventLoop::new(LoopConfig::default()).unwrap();
            events.listen(&address).unwrap();
            let mut calls = 0;
            loop {
                // Its own loop: whatever else there is, then a sleep.
                while let Some(event) = events.poll() {
                    calls += u32::from(matches!(event, Event::HalfClosed { .. }));
                    if !echoes(&mut events, &event) && matches!(event, Event::Closed { .. }) {
                        return calls;
                    }
                }
                if events.arm() {
                    sleeps(&events, events.timeout().unwrap_or(Duration::from_secs(20)));
                }
            }
        }
    });
    let mut client = EventLoop::new(LoopConfig::default()).unwrap();
    let session = loop {
        let session = client.connect(&address).unwrap();
        if matches!(next(&mut client), Event::Connected { .. }) {
            break session;
        }
    };
    for number in 0..500_u32 {
        if number % 50 == 0 {
            // Long enough for the server to sleep.
            std::thread::sleep(Duration::from_millis(2));
        }
        client.call(session, unary(number.to_le_bytes().to_vec())).unwrap();
        loop {
            if let Event::Ended { status, .. } = next(&mut client) {
                assert_eq!(status.code, 0);
                break;
            }
        }
    }
    client.close(session);
    while !matches!(next(&mut client), Event::Closed { .. }) {}
    assert_eq!(server.join().unwrap(), 500);
}

#[test]
fn another_thread_wakes_a_loop_that_sleeps() {
    let mut events = EventLoop::new(LoopConfig::default()).unwrap();
    let waker = events.waker();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        waker.wake();
    });
    let began = Instant::now();
    assert!(events.wait(None).unwrap().is_none());
    assert!(began.elapsed() < Duration::from_secs(20));
    thread.join().unwrap();
    assert!(events.arm() && !sleeps(&events, Duration::ZERO), "the call is over");
}

#[test]
fn sessions_in_which_nothing_happens_take_no_processor_time_and_no_timer() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, unary("once")).unwrap();
    both.until_ended(call);
    let taken = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    // What is left of looking goes by first.
    both.events.wait(Some(Duration::from_millis(20))).unwrap();
    let before = taken();
    assert!(both.events.wait(Some(Duration::from_millis(300))).unwrap().is_none());
    let took = taken() - before;
    assert!(took < Duration::from_millis(3), "{took:?}");
    assert_eq!(both.events.timeout(), None);
}

#[test]
#[ignore = "runs in a process that another test starts: others' threads may hold locks"]
fn as_child() {
    let mut both = Some(Both::new(LoopConfig::default()));
    let (_directory, address) = place();
    let child = fork(|| {
        let mut both = both.take().unwrap();
        let is_left_alone = both.events.poll().is_none()
            && both.events.wait(None).is_err()
            && both.events.call(both.client, unary("in the child")) == Err(CallError::Over)
            && both.events.connect(&address).is_err()
            && both.events.peer(both.server).is_none()
            && both.events.arm();
        both.events.close(both.client);
        drop(both);
        i32::from(!is_left_alone)
    });
    assert_eq!(child.wait(Duration::from_secs(20)), 0);
    let mut both = both.unwrap();
    let call = both.events.call(both.client, unary("afterwards")).unwrap();
    assert_eq!(both.until_ended(call).status.unwrap().code, 0);
}

#[test]
fn a_child_of_fork_has_no_part_in_its_parents_loop() {
    let arguments = ["host::as_child", "--exact", "--ignored", "--test-threads=1", "--nocapture"];
    let process =
        std::process::Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
    assert!(process.status.success(), "{}", String::from_utf8_lossy(&process.stderr));
    assert!(String::from_utf8_lossy(&process.stdout).contains("1 passed"));
}
