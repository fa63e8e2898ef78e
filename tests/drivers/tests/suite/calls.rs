//! Calls of all four kinds.

use bytes::Bytes;

use crate::driver::{Answer, Place, Settings, Start, Told};
use crate::service::{COUNT, ECHO, SOURCE, count_of, pattern, source_of};

pub(crate) fn unary_calls_of_all_lengths(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    for len in [0, 1, 64, 5_000, 40_000, 300_000, 2_000_000, 64, 0] {
        let message = pattern(7, len);
        let answer = client.call(Start::unary(ECHO, message.clone()));
        let expected = Answer { headers: Some(Bytes::new()), messages: vec![message], ..Answer::default() };
        assert_eq!(answer, expected, "{len} bytes");
    }
}

pub(crate) fn metadata_go_there_and_back(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let mut block = Vec::new();
    tollfree_layout::metadata::pack(&mut block, "x-name", b"value").unwrap();
    tollfree_layout::metadata::pack(&mut block, "x-bytes-bin", &[0, 255]).unwrap();
    // The first call names its method; a later one may come as a whole.
    for nth in 0..3 {
        let start = Start { metadata: block.clone().into(), ..Start::unary(ECHO, "hello") };
        assert_eq!(client.call(start).headers, Some(block.clone().into()), "call {nth}");
    }
}

pub(crate) fn a_client_streams(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    for (count, len) in [(1, 10), (3, 100_000), (500, 64), (40, 9_000)] {
        let call = client.begin(Start::open(COUNT)).unwrap();
        (0..count).for_each(|nth| client.send(call, pattern(nth, len)));
        client.finish(call);
        let answer = client.answer(call);
        assert_eq!(answer.messages, [count_of(count.into(), u64::from(count) * len as u64)]);
        assert_eq!(answer.code, 0);
    }
}

pub(crate) fn a_server_streams(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    for (count, len) in [(0, 0), (1, 10), (3, 100_000), (2_000, 64), (40, 9_000)] {
        let answer = client.call(Start::unary(SOURCE, source_of(count, len)));
        assert_eq!(answer.code, 0);
        assert_eq!(answer.messages.len(), count as usize);
        for (nth, message) in (0..).zip(answer.messages) {
            assert!(message == pattern(nth, len as usize), "message {nth} of {count} with {len} bytes");
        }
    }
}

pub(crate) fn both_stream_in_turn(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let call = client.begin(Start::open(ECHO)).unwrap();
    assert_eq!(client.next(), Told::Headers(call, Bytes::new()));
    for nth in 0..300 {
        let message = pattern(nth, nth as usize * 97 % 30_000);
        client.send(call, message.clone());
        assert_eq!(client.next(), Told::Message(call, message));
    }
    client.finish(call);
    assert_eq!(client.next(), Told::Ended { call, code: 0, unprocessed: false });
}

pub(crate) fn both_stream_at_once(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let call = client.begin(Start::open(ECHO)).unwrap();
    let messages: Vec<Bytes> = (0..400).map(|nth| pattern(nth, nth as usize * 131 % 20_000)).collect();
    messages.iter().for_each(|message| client.send(call, message.clone()));
    client.finish(call);
    let answer = client.answer(call);
    assert!(answer.messages == messages && answer.code == 0);
}

pub(crate) fn empty_streams(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    for (path, expected) in [(ECHO, vec![]), (COUNT, vec![count_of(0, 0)])] {
        let answer = client.call(Start { is_last: true, ..Start::open(path) });
        assert_eq!((answer.code, answer.messages), (0, expected), "{path}");
    }
}

pub(crate) fn many_calls_at_once(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let message = |nth: u64| pattern(nth as u32, (nth as usize * 53) % 12_000);
    let calls: Vec<u64> =
        (0..600).map(|nth| client.begin(Start::unary(ECHO, message(nth))).unwrap()).collect();
    let (mut came, mut ended) = (0, 0);
    while ended < calls.len() {
        match client.next() {
            Told::Headers(..) => {}
            Told::Message(call, echo) => {
                assert!(echo == message(call - calls[0]), "the echo of call {call}");
                came += 1;
            }
            Told::Ended { code, .. } => {
                assert_eq!(code, 0);
                ended += 1;
            }
            told => panic!("{told:?}"),
        }
    }
    assert_eq!(came, calls.len());
}
