//! Handlers in threads: those that take long, that panic, that are too many.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_blocking::ServedCall;

use crate::support::{Both, LONG, channel, echo, eventually, unary};

/// A gate that handlers stand at.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, LONG, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn a_handler_that_takes_long_holds_nobody_up() {
    let gate = Gate::default();
    let both = Both::new(8, {
        let gate = gate.clone();
        move |call: &ServedCall| {
            if call.path().starts_with(b"/test.Slow/") {
                gate.wait();
            }
            echo(call);
        }
    });
    let slow: Vec<_> = (0..3).map(|_| both.channel.begin(unary("/test.Slow/Call", "slow"))).collect();
    // In the same session, and in another.
    for channel in [&both.channel, &channel(&both.address)] {
        let began = Instant::now();
        for _ in 0..20 {
            assert_eq!(channel.unary(unary("/test.Echo/Call", "quick")).unwrap().bytes, "quick");
        }
        assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    }
    assert!(slow.iter().all(|call| !call.is_over()));
    gate.open();
    for call in slow {
        assert_eq!(call.answer().unwrap().bytes, "slow");
    }
}

#[test]
fn no_more_handlers_run_at_once_than_there_may_be() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let both = Both::new(3, {
        let (running, most) = (running.clone(), most.clone());
        move |call: &ServedCall| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            running.fetch_sub(1, Ordering::SeqCst);
            echo(call);
        }
    });
    let calls: Vec<_> = (0..30).map(|_| both.channel.begin(unary("/test.Echo/Call", "hello"))).collect();
    for call in calls {
        assert_eq!(call.answer().unwrap().bytes, "hello");
    }
    let most = most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most} at once");
}

/// All handlers that may run wait for their clients, and these for nobody.
#[test]
fn handlers_that_wait_for_messages_get_them_where_no_other_may_run() {
    let both = Both::new(2, |call: &ServedCall| {
        while let Some(message) = call.receive() {
            let _ = call.send(message);
        }
        let _ = call.answer_end(0, Bytes::new());
    });
    let start = || tollfree_driver_blocking::CallStart::new("/test.Echo/Stream");
    let calls: Vec<_> = (0..3).map(|_| both.channel.begin(start())).collect();
    for _ in 0..100 {
        for call in &calls[..2] {
            call.send(Bytes::from_static(b"hello")).unwrap();
            assert_eq!(call.receive_within(LONG).unwrap().unwrap().bytes, "hello");
        }
    }
    calls[2].send(Bytes::from_static(b"waits")).unwrap();
    assert!(calls[2].receive_within(Duration::from_millis(20)).is_err());
    calls[0].finish();
    assert_eq!(calls[0].status().code, 0);
    assert_eq!(calls[2].receive_within(LONG).unwrap().unwrap().bytes, "waits");
}

#[test]
fn a_handler_that_panics_or_says_nothing_ends_its_call_alone() {
    let both = Both::new(4, |call: &ServedCall| match &call.path()[..] {
        b"/test.Panic/Call" => panic!("on purpose"),
        b"/test.Nothing/Call" => {}
        _ => echo(call),
    });
    for (path, words) in [("/test.Panic/Call", "panicked"), ("/test.Nothing/Call", "not answered")] {
        for _ in 0..10 {
            let status = both.channel.unary(unary(path, "hello")).unwrap_err();
            assert_eq!(status.code, 2);
            assert!(status.words().contains(words), "{}", status.words());
        }
    }
    assert_eq!(both.channel.unary(unary("/test.Echo/Call", "goes on")).unwrap().bytes, "goes on");
}

#[test]
fn a_handler_hears_that_its_call_was_cancelled() {
    let heard = Arc::new(AtomicUsize::new(0));
    let both = Both::new(4, {
        let heard = heard.clone();
        move |call: &ServedCall| {
            if let Ok(status) = call.wait_cancelled(LONG) {
                heard.fetch_add(usize::from(status.code == 1), Ordering::SeqCst);
                assert!(call.answer(Bytes::new()).is_err());
            }
        }
    });
    for _ in 0..5 {
        drop(both.channel.begin(unary("/test.Silent/Call", "hello")));
    }
    let call = both.channel.begin(unary("/test.Silent/Call", "hello"));
    assert!(call.receive_within(Duration::from_millis(30)).is_err());
    call.cancel(1);
    assert_eq!(call.status().code, 1);
    eventually("no handler hears of it", || heard.load(Ordering::SeqCst) >= 1);
}
