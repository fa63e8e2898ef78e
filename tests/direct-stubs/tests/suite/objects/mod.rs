//! Services and clients that take objects (level 3), against those of prost's structs (levels 1 and 2), over sessions and
//! HTTP/2.

mod batch_ends;
mod batch_lies;
mod batch_turns;
mod batches;
mod endings;
mod hostile;
mod hostile_streams;
mod levels;
mod place;
mod raw;
mod streams;
mod travel;
mod trust;
mod unread;
