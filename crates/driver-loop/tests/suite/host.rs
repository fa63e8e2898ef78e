//! A loop within a host's own: its descriptor, timers, other threads, and what it costs while nothing happens.

use std::time::{Duration, Instant};

use tollfree_driver_loop::{CallError, CallStart, Event, EventLoop, LoopConfig, Message};
use tollfree_os::fd::AsFd;
use tollfree_os::rustix::event::{PollFd, PollFlags, Timespec, poll};

use tollfree_testkit::{alone, fork};

use crate::support::{Both, LONG, echoes, next, place, thread_time, unary};

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

/// Also where the loop hears of it while it does something else.
#[test]
fn a_call_of_another_thread_is_never_lost() {
    let mut events = EventLoop::new(LoopConfig::default()).unwrap();
    let waker = events.waker();
    for _ in 0..20 {
        waker.wake();
        // The kernel is asked now and then.
        std::thread::sleep(Duration::from_micros(100));
        assert!(events.poll().is_none());
        let began = Instant::now();
        assert!(events.wait(Some(LONG)).unwrap().is_none());
        assert!(began.elapsed() < LONG / 2, "it was heard of, and forgotten");
        waker.wake();
        std::thread::sleep(Duration::from_micros(100));
        assert!(events.poll().is_none());
        assert!(!events.arm(), "another thread has called");
        assert!(events.arm() && !sleeps(&events, Duration::ZERO), "once");
    }
}

/// A session with messages without end keeps neither other sessions nor timers nor other threads waiting, and what the application has not taken
/// is no more than what one turn brings.
#[test]
fn a_busy_session_is_in_nobodys_way() {
    let mut both = Both::new(LoopConfig::default());
    let busy = both.events.call(both.client, CallStart::new("/test.Busy/Stream")).unwrap();
    let other = both.events.connect(&both.address().clone()).unwrap();
    let message = || Message::from(&[7; 1000][..]);
    let (mut is_connected, mut answered, mut late, mut called) = (false, 0, false, false);
    let waker = both.events.waker();
    let until = Instant::now() + LONG;
    let (mut asked, mut timed) = (None, None);
    for _ in 0..50 {
        both.events.send(busy, message()).unwrap();
    }
    while !(answered >= 20 && late && called) {
        assert!(Instant::now() < until, "{is_connected} {answered} {late} {called}");
        let event = both.events.wait(Some(LONG)).unwrap();
        called |= event.is_none();
        match event {
            Some(Event::Connected { session }) if session == other => {
                is_connected = true;
                asked = Some(both.events.call(other, unary("1")).unwrap());
                let deadline_ns = Some(tollfree_os::clock::now_ns() + 5_000_000);
                let start = CallStart { deadline_ns, ..CallStart::new("/test.Late/Stream") };
                timed = Some(both.events.call(other, start).unwrap());
                waker.wake();
            }
            Some(Event::Sent { call }) if call == busy => {
                for _ in 0..50 {
                    both.events.send(busy, message()).unwrap();
                }
            }
            // The busy stream's messages are for nobody.
            Some(Event::Message { call, .. })
                if both.events.serves(call) && call.session() == both.server => {}
            Some(Event::Ended { call, .. }) if Some(call) == asked => {
                answered += 1;
                asked = Some(both.events.call(other, unary("1")).unwrap());
            }
            Some(Event::Ended { call, status }) if Some(call) == timed => {
                assert_eq!(status.code, 4);
                late = true;
            }
            Some(event) => drop(echoes(&mut both.events, &event)),
            None => {}
        }
    }
}

#[test]
fn sessions_in_which_nothing_happens_take_no_processor_time_and_no_timer() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, unary("once")).unwrap();
    both.until_ended(call);
    // What is left of looking goes by first.
    both.events.wait(Some(Duration::from_millis(20))).unwrap();
    let before = thread_time();
    assert!(both.events.wait(Some(Duration::from_millis(300))).unwrap().is_none());
    let took = thread_time() - before;
    assert!(took < Duration::from_millis(3), "{took:?}");
    assert_eq!(both.events.timeout(), None);
}

#[test]
fn a_child_of_fork_has_no_part_in_its_parents_loop() {
    // Others' threads may hold locks.
    alone!();
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

/// A process that is out of descriptors says so once, and takes the clients that wait as soon as it can.
#[test]
fn out_of_descriptors_clients_wait_and_the_application_is_told_once() {
    alone!();
    use std::os::fd::AsRawFd as _;
    use tollfree_os::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (directory, address) = place();
    let mut server = EventLoop::new(LoopConfig::default()).unwrap();
    server.listen(&address).unwrap();
    let path = directory.path().join("s.sock");
    let clients: Vec<_> = (0..3).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap()).collect();
    let lowest_free = std::fs::File::open("/dev/null").unwrap().as_fd().as_raw_fd() as u64;
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest_free), ..before }).unwrap();
    let mut told = 0;
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        match server.wait(Some(Duration::from_millis(20))).unwrap() {
            Some(Event::NotAccepted { error, .. }) => {
                assert_eq!(error.raw_os_error(), Some(24), "{error}");
                told += 1;
            }
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }
    assert_eq!(told, 1);
    setrlimit(Resource::Nofile, before).unwrap();
    drop(clients);
    let mut client = EventLoop::new(LoopConfig::default()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.connect(&address).unwrap();
            assert!(matches!(next(&mut client), Event::Connected { .. }));
        });
        while !matches!(next(&mut server), Event::Accepted { .. }) {}
    });
}

/// A child of `fork` holds copies of what the loop watched: the loop hears no more of sessions that have ended.
#[test]
fn sessions_that_have_ended_wake_nobody_though_a_child_holds_copies() {
    alone!();
    let mut both = Both::new(LoopConfig::default());
    let child = fork(|| {
        std::thread::sleep(LONG);
        0
    });
    both.events.close(both.client);
    let mut closed = 0;
    while closed < 2 {
        closed += usize::from(matches!(next(&mut both.events), Event::Closed { .. }));
    }
    let before = thread_time();
    assert!(both.events.wait(Some(Duration::from_millis(300))).unwrap().is_none());
    let took = thread_time() - before;
    assert!(took < Duration::from_millis(30), "{took:?}");
    drop(child);
}
