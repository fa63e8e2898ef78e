//! Messages from nothing to 256 MiB.

use crate::stubs::probe::Ask;
use tokio_stream::StreamExt;

use super::lab::{Lab, Way};
use super::probe::pattern;

const LENS: [usize; 12] = [0, 1, 63, 64, 4096, 8191, 8193, 16_384, 32_768, 65_536, 1 << 20, (4 << 20) - 512];

fn sent(len: usize) -> Ask {
    Ask { body: pattern(len, len as u32), ..Ask::default() }
}

async fn unary_both_ways(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for len in LENS {
        let answer = client.unary(sent(len)).await.unwrap().into_inner();
        assert!(answer.body == pattern(len, len as u32), "{len} bytes came back changed");
    }
}

async fn answers_larger_than_their_requests(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for len in LENS {
        let ask = Ask { lens: vec![len as u32], ..Ask::default() };
        let answer = client.unary(ask).await.unwrap().into_inner();
        assert!(answer.body == pattern(len, 0), "{len} bytes came changed");
    }
}

async fn streams_of_mixed_sizes(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let lens: Vec<usize> = (0..80).map(|number| LENS[number * 5 % 11]).collect();
    let asks: Vec<_> = lens.iter().map(|len| sent(*len)).collect();
    let answers = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
    let got: Vec<_> = answers.collect::<Result<Vec<_>, _>>().await.unwrap();
    assert_eq!(got.len(), lens.len());
    for (answer, len) in got.iter().zip(&lens) {
        assert!(answer.body == pattern(*len, *len as u32), "{len} bytes in a stream came back changed");
    }
}

async fn a_stream_down_of_mixed_sizes(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let lens: Vec<u32> = (0..60).map(|number| LENS[number * 7 % 11] as u32).collect();
    let answers = client.down(Ask { lens: lens.clone(), ..Ask::default() }).await.unwrap().into_inner();
    let got: Vec<_> = answers.collect::<Result<Vec<_>, _>>().await.unwrap();
    assert_eq!(got.len(), lens.len());
    for (number, (answer, len)) in got.iter().zip(&lens).enumerate() {
        assert!(answer.body == pattern(*len as usize, number as u32), "{len} bytes came changed");
    }
}

crate::rows!(
    unary_both_ways,
    answers_larger_than_their_requests,
    streams_of_mixed_sizes,
    a_stream_down_of_mixed_sizes,
);

/// Once, since it takes a second: there and back.
#[tokio::test]
async fn a_quarter_of_a_gibibyte() {
    const LEN: usize = 256 << 20;
    let lab = Lab::with(Way::Shm, tollfree::Server::builder(), |probe| {
        probe.max_decoding_message_size(LEN + 4096).max_encoding_message_size(LEN + 4096)
    })
    .await;
    let mut client = lab.client().max_decoding_message_size(LEN + 4096).max_encoding_message_size(LEN + 4096);
    // Every piece of 4 KiB says where it belongs.
    const PIECE_LEN: usize = 4096;
    let mut body = vec![7; LEN];
    for (number, piece) in body.chunks_mut(PIECE_LEN).enumerate() {
        piece[..8].copy_from_slice(&number.to_le_bytes());
    }
    let answer = client.unary(Ask { body, ..Ask::default() }).await.unwrap().into_inner();
    assert_eq!((answer.body.len(), answer.seen_len), (LEN, LEN as u64));
    for (number, piece) in answer.body.chunks(PIECE_LEN).enumerate() {
        assert!(piece[..8] == number.to_le_bytes() && piece[8..] == [7; PIECE_LEN - 8], "piece {number}");
    }
}
