//! One process shares a file's bytes, another reads them where they lie and writes a part: `cargo run --example share`.
//!
//! Both members are in this process, so that it runs by itself; a channel stands for whatever carries messages.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};

use tollfree_pool::{Address, Capacity, Config, Payload, Pool, Ref};

fn share(
    address: &Address,
    mut file: File,
    to_reader: &Sender<Vec<u8>>,
) -> Result<(Pool, Ref), Box<dyn Error>> {
    let len = usize::try_from(file.metadata()?.len())?;
    let pool = Pool::create(address, Capacity::default(), Config::default())?;
    let mut buffer = pool.buffer(len)?; // produce into it: BufMut, io::Write, or a slice
    file.read_exact(buffer.resize_zeroed(len))?;
    let bytes = buffer.freeze()?; // a ref: read it, clone it, slice it, make it `Bytes`
    to_reader.send(bytes.to_bytes()?.to_vec())?; // 56 bytes, by whatever means
    Ok((pool, bytes))
}

fn read(address: &Address, from_writer: &Receiver<Vec<u8>>) -> Result<Payload, Box<dyn Error>> {
    let pool = Pool::join(address, Config::default())?;
    let seen = pool.map_ref(&from_writer.recv()?)?; // the same memory, read in place
    let mut mine = Payload::from(seen);
    mine.make_mut(0..2)?.copy_from_slice(b"//"); // a copy of the one page that is touched

    let mut plain = mine.overlay()?; // for code that knows nothing of pools: plain memory, copied as it is written
    blur(&mut plain);
    let blurred = plain.share()?; // untouched pages are still the first writer's
    Ok(blurred)
}

/// Smooths the beginning.
fn blur(pixels: &mut [u8]) {
    for at in 1..pixels.len().min(1000) {
        pixels[at] = pixels[at - 1].midpoint(pixels[at]);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/pool.sock", directory.path().display()).parse()?;
    let (sender, receiver) = channel();
    let (_pool, bytes) = share(&address, File::open(std::env::current_exe()?)?, &sender)?;
    let mine = read(&address, &receiver)?;
    println!("{} bytes shared; begin {:x?} here, {:x?} there", bytes.len(), &bytes[..2], &mine.to_vec()[..2]);
    Ok(())
}
