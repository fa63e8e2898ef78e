//! Calls of all four kinds, of all lengths.

use bytes::Bytes;
use tollfree_driver_loop::{CallStart, Event, LoopConfig, Message};
use tollfree_layout::metadata;

use crate::support::{Both, echoes, next, unary};

#[test]
fn unary_calls_are_answered_whatever_the_length_of_their_messages() {
    let mut both = Both::new(LoopConfig::default());
    for len in [0, 1, 64, 5_000, 40_000, 300_000, 4 << 20] {
        let message = Bytes::from((0..len).map(|at| at as u8).collect::<Vec<_>>());
        let call = both.events.call(both.client, unary(message.clone())).unwrap();
        let told = both.until_ended(call);
        assert_eq!(told.status.unwrap().code, 0, "{len}");
        assert_eq!(told.messages, [message], "{len}");
    }
    assert_eq!((both.events.call_count(both.client), both.events.call_count(both.server)), (0, 0));
}

/// The first call names its method, later ones come in another form: as a whole.
#[test]
fn metadata_go_there_and_back_on_the_first_call_of_a_method_and_on_later_ones() {
    let mut both = Both::new(LoopConfig::default());
    let mut block = Vec::new();
    metadata::pack(&mut block, "x-name", b"value").unwrap();
    metadata::pack(&mut block, "x-bytes-bin", &[0, 255]).unwrap();
    for nth in 0..3 {
        let start = CallStart { metadata: block.clone().into(), ..unary("hello") };
        let call = both.events.call(both.client, start).unwrap();
        let told = both.until_ended(call);
        assert_eq!(told.headers.unwrap(), block, "call {nth}");
        assert_eq!(told.messages, [&b"hello"[..]], "call {nth}");
    }
}

#[test]
fn streams_carry_many_messages_both_ways_and_tell_when_they_are_sent() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    let (mut sent, mut received, mut answered) = (0, 0, false);
    let message =
        |number: u32| Message::from(Bytes::from(vec![number as u8; (number as usize * 97) % 30_000]));
    both.events.send(call, message(0)).unwrap();
    while !answered {
        let event = next(&mut both.events);
        if echoes(&mut both.events, &event) {
            continue;
        }
        match event {
            Event::Sent { .. } if sent < 999 => {
                sent += 1;
                both.events.send(call, message(sent)).unwrap();
                if sent == 999 {
                    both.events.finish(call).unwrap();
                }
            }
            Event::Message { message: came, .. } => {
                assert_eq!(came, message(received));
                received += 1;
            }
            Event::Ended { status, .. } => answered = status.code == 0,
            _ => {}
        }
    }
    assert_eq!(received, 1_000);
}

#[test]
fn more_calls_than_the_server_takes_at_once_wait_for_their_turn() {
    let mut config = LoopConfig::default();
    config.limits.stream_count = 4;
    let mut both = Both::new(config);
    let calls: Vec<_> =
        (0..50).map(|number: u8| both.events.call(both.client, unary(vec![number; 100])).unwrap()).collect();
    let mut ended = Vec::new();
    while ended.len() < calls.len() {
        let event = next(&mut both.events);
        assert!(both.events.call_count(both.server) <= 4);
        if !echoes(&mut both.events, &event)
            && let Event::Ended { call, status } = event
        {
            assert_eq!(status.code, 0);
            ended.push(call);
        }
    }
    assert_eq!(ended, calls, "in the order in which they came");
}

#[test]
fn a_message_that_is_too_long_ends_its_call_alone() {
    let mut both = Both::new(LoopConfig { message_len_max: 1_000, ..LoopConfig::default() });
    let call = both.events.call(both.client, unary(vec![7; 1_001])).unwrap();
    assert_eq!(both.until_ended(call).status.unwrap().code, 8);
    let call = both.events.call(both.client, unary(vec![7; 1_000])).unwrap();
    assert_eq!(both.until_ended(call).status.unwrap().code, 0);
}

/// A client that does not read holds up its own call, and no other.
#[test]
fn a_call_that_is_paused_takes_no_more_than_its_window_and_goes_on() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    let message = Bytes::from(vec![7; 1000]);
    let total = 3000;
    let (mut sent, mut came, mut is_paused) = (0, 0, false);
    let mut server_call = None;
    let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
    while std::time::Instant::now() < until {
        match both.events.wait(Some(std::time::Duration::from_millis(5))).unwrap() {
            Some(Event::Call { call, .. }) => {
                server_call = Some(call);
                both.events.send(call, Message::from(message.clone())).unwrap();
                sent = 1;
            }
            Some(Event::Sent { call }) if Some(call) == server_call && sent < total => {
                both.events.send(call, Message::from(message.clone())).unwrap();
                sent += 1;
            }
            Some(Event::Message { .. }) => {
                came += 1;
                if came == 10 {
                    both.events.pause(call);
                    is_paused = true;
                }
            }
            _ => {}
        }
    }
    assert!(is_paused && sent < total, "{sent} were sent");
    let window = tollfree_driver_loop::Limits::default().stream_window as usize;
    assert!(came <= 10 + window / 1000, "{came} came");
    both.events.resume(call);
    while came < total {
        match next(&mut both.events) {
            Event::Sent { call } if Some(call) == server_call && sent < total => {
                both.events.send(call, Message::from(message.clone())).unwrap();
                sent += 1;
            }
            Event::Message { call: of, .. } if of == call => came += 1,
            _ => {}
        }
    }
    both.events.pause(call);
    both.events.answer_end(server_call.unwrap(), 0, Bytes::new()).unwrap();
    while !matches!(next(&mut both.events), Event::Ended { call: ended, .. } if ended == call) {}
}
