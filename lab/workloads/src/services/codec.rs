//! What the workers of the image pipeline do with the image library. The result is encoded where the reply needs it: in the
//! pool, where there is one.

use std::io::BufWriter;

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ImageFormat};

use crate::seat::Seat;

/// Quality of images that are transcoded, and of those that are to have fewer bytes.
const QUALITY: u8 = 85;
const QUALITY_COMPRESSED: u8 = 40;
/// Room for what encoders write around the pixels.
const ROOM: usize = 64 << 10;

/// An image into another one. Errors are in words.
pub(super) type Recode = fn(&Seat, &[u8]) -> Result<Bytes, String>;

/// JPEG into PNG, anything else into JPEG.
pub(super) fn transcode(seat: &Seat, image: &[u8]) -> Result<Bytes, String> {
    let format = image::guess_format(image).map_err(|error| error.to_string())?;
    let pixels = decode(image, format)?;
    let target = if format == ImageFormat::Jpeg { ImageFormat::Png } else { ImageFormat::Jpeg };
    encode(seat, pixels, target, QUALITY)
}

/// Anything into a JPEG of low quality.
pub(super) fn compress(seat: &Seat, image: &[u8]) -> Result<Bytes, String> {
    let format = image::guess_format(image).map_err(|error| error.to_string())?;
    encode(seat, decode(image, format)?, ImageFormat::Jpeg, QUALITY_COMPRESSED)
}

fn decode(image: &[u8], format: ImageFormat) -> Result<DynamicImage, String> {
    image::load_from_memory_with_format(image, format).map_err(|error| error.to_string())
}

fn encode(seat: &Seat, pixels: DynamicImage, format: ImageFormat, quality: u8) -> Result<Bytes, String> {
    let pixels = pixels.into_rgb8();
    let mut sink = seat.sink(pixels.as_raw().len() + ROOM)?;
    // Encoders write single bytes.
    let mut out = BufWriter::new(&mut sink);
    let encoded = match format {
        ImageFormat::Png => pixels.write_with_encoder(PngEncoder::new(&mut out)),
        _ => pixels.write_with_encoder(JpegEncoder::new_with_quality(&mut out, quality)),
    };
    encoded.map_err(|error| error.to_string())?;
    out.into_inner().map_err(|error| error.to_string())?;
    Ok(sink.freeze())
}
