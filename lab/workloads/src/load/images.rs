//! Requests to the image pipeline: patterns of any length that are only touched, and real image files.

use std::path::PathBuf;

use bytes::Bytes;
use image::{ImageFormat, ImageReader};

use super::{Caller, failed, in_full};
use crate::direct::{ImageReply, ImageRequest, Operation};
use crate::pattern;
use crate::seat::Seat;
use crate::services::TOKEN;
use crate::stubs::ImagesClient;

/// Asks for both operations in turn.
struct Pipeline {
    seat: Seat,
    client: ImagesClient,
}

impl Pipeline {
    async fn at(seat: &Seat, entry: &str) -> Result<Pipeline, String> {
        Ok(Pipeline { seat: seat.clone(), client: ImagesClient::connect(seat, entry).await? })
    }

    async fn process(&self, image: Bytes, operation: Operation) -> Result<ImageReply, String> {
        let request = ImageRequest { image, operation: operation.into(), token: TOKEN.to_owned() };
        self.client.process(request).await.map_err(failed)
    }
}

fn operation(nth: u64) -> Operation {
    if nth.is_multiple_of(2) { Operation::Transcode } else { Operation::Compress }
}

/// Sends patterns, which come back as they are with the sum that the worker read.
pub(super) struct Patterns {
    pipeline: Pipeline,
    size: usize,
}

impl Patterns {
    pub(super) async fn new(seat: &Seat, entry: &str, size: usize) -> Result<Patterns, String> {
        Ok(Patterns { pipeline: Pipeline::at(seat, entry).await?, size })
    }
}

impl Caller for Patterns {
    async fn call(&self, nth: u64) -> Result<(), String> {
        let image = self.pipeline.seat.write(self.size, nth)?;
        let reply = self.pipeline.process(image, operation(nth)).await?;
        let expected = pattern::sum_of(self.size, nth);
        let is_whole = pattern::is_at_the_ends(&reply.image, self.size, nth)
            && (!in_full(nth) || pattern::sum(&reply.image) == expected);
        if reply.sum != expected || !is_whole {
            return Err(format!(
                "sent {} bytes that sum up to {expected} in call {nth}; the worker read {}, and {} bytes came back",
                self.size,
                reply.sum,
                reply.image.len()
            ));
        }
        Ok(())
    }
}

/// Sends image files.
pub(super) struct Files {
    pipeline: Pipeline,
    files: Vec<File>,
}

struct File {
    path: PathBuf,
    bytes: Vec<u8>,
    format: ImageFormat,
    /// Width and height in pixels.
    shape: (u32, u32),
}

impl Files {
    pub(super) async fn new(seat: &Seat, entry: &str, paths: &[PathBuf]) -> Result<Files, String> {
        if paths.is_empty() {
            return Err("there are no image files to send".to_owned());
        }
        let files = paths.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Files { pipeline: Pipeline::at(seat, entry).await?, files })
    }
}

fn read(path: &PathBuf) -> Result<File, String> {
    let in_words =
        |error: &dyn std::fmt::Display| format!("cannot read the image {}: {error}", path.display());
    let bytes = std::fs::read(path).map_err(|error| in_words(&error))?;
    let format = image::guess_format(&bytes).map_err(|error| in_words(&error))?;
    let shape = shape(&bytes, format).map_err(|error| in_words(&error))?;
    Ok(File { path: path.clone(), bytes, format, shape })
}

fn shape(bytes: &[u8], format: ImageFormat) -> Result<(u32, u32), image::ImageError> {
    ImageReader::with_format(std::io::Cursor::new(bytes), format).into_dimensions()
}

impl Caller for Files {
    async fn call(&self, nth: u64) -> Result<(), String> {
        // Each file is asked for both operations.
        let file = &self.files[(nth / 2) as usize % self.files.len()];
        let operation = operation(nth);
        let reply = self.pipeline.process(self.pipeline.seat.copy(&file.bytes)?, operation).await?;
        if !in_full(nth / 2) {
            return if reply.image.is_empty() {
                Err(format!("nothing came back for {}", file.path.display()))
            } else {
                Ok(())
            };
        }
        let expected = match (operation, file.format) {
            (Operation::Transcode, ImageFormat::Jpeg) => ImageFormat::Png,
            _ => ImageFormat::Jpeg,
        };
        let decode = || image::load_from_memory_with_format(&reply.image, expected);
        let shape = self.pipeline.seat.counters.codec(decode);
        let shape = shape.map(|image| (image.width(), image.height())).map_err(|error| {
            format!("what came back for {} is no {expected:?}: {error}", file.path.display())
        })?;
        if shape != file.shape {
            return Err(format!(
                "{} is of {:?} pixels, and came back with {shape:?}",
                file.path.display(),
                file.shape
            ));
        }
        Ok(())
    }
}
