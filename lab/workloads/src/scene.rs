//! Images for the real codec: a landscape that a program draws, of about the size in bytes that is asked for. It has smooth
//! parts, edges and noise, as photographs have.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, Rgb, RgbImage};
use tollfree_bench::BenchError;

use crate::dice::Dice;

/// The smallest file that is asked for.
pub(crate) const SIZE_MIN: usize = 2 << 10;
const QUALITY: u8 = 90;
/// How often a width is corrected by the size that it gave.
const ATTEMPT_COUNT: usize = 5;

/// Writes a JPEG and a PNG of about `size` bytes into a directory.
pub(crate) fn write(dir: &Path, size: usize) -> Result<Vec<PathBuf>, BenchError> {
    [(ImageFormat::Jpeg, "jpg"), (ImageFormat::Png, "png")]
        .into_iter()
        .map(|(format, ending)| {
            let path = dir.join(format!("scene-{size}.{ending}"));
            let written = std::fs::write(&path, of_size(format, size));
            written.map_err(|source| BenchError::Write { path: path.clone(), source })?;
            Ok(path)
        })
        .collect()
}

/// The JPEG and PNG files of a directory, in the order of their names.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let unreadable = |error: std::io::Error| {
        BenchError::Refused(format!("cannot read the directory {}: {error}", dir.display()))
    };
    let mut found = Vec::new();
    for entry in dir.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let format = ImageFormat::from_path(&path).ok();
        if path.is_file() && matches!(format, Some(ImageFormat::Jpeg | ImageFormat::Png)) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(BenchError::Refused(format!("there are no JPEG or PNG files in {}", dir.display())));
    }
    Ok(found)
}

/// An image file of about `size` bytes.
fn of_size(format: ImageFormat, size: usize) -> Vec<u8> {
    let mut width = 64.0;
    let mut file = encode(format, width as u32);
    for _ in 0..ATTEMPT_COUNT {
        // Bytes grow with the area.
        width = (width * (size as f64 / file.len() as f64).sqrt()).clamp(8.0, 8192.0);
        file = encode(format, width as u32);
    }
    file
}

fn encode(format: ImageFormat, width: u32) -> Vec<u8> {
    let scene = draw(width, (width * 2 / 3).max(1));
    let mut file = Cursor::new(Vec::new());
    let encoded = match format {
        ImageFormat::Jpeg => scene.write_with_encoder(JpegEncoder::new_with_quality(&mut file, QUALITY)),
        format => scene.write_to(&mut file, format),
    };
    encoded.expect("an image is encoded into memory");
    file.into_inner()
}

/// Sky over three ranges of hills, with grain.
fn draw(width: u32, height: u32) -> RgbImage {
    let mut dice = Dice::new(u64::from(width));
    RgbImage::from_fn(width, height, |x, y| {
        let (x, y) = (f64::from(x) / f64::from(width), f64::from(y) / f64::from(height));
        let mut colour = [90.0 + 120.0 * y, 140.0 + 70.0 * y, 230.0 - 20.0 * y];
        for range in 1..=3 {
            let depth = f64::from(range);
            let ridge = 0.25
                + 0.17 * depth
                + 0.06 * (x * 7.0 * depth + depth).sin()
                + 0.02 * (x * 31.0 + 5.0 * depth).sin();
            if y > ridge {
                let shade = 1.0 - 0.22 * depth;
                let grass = 18.0 * ((x * 90.0 * depth).sin() * (y * 130.0).cos());
                colour = [70.0 * shade + grass, 150.0 * shade + grass, 60.0 * shade];
            }
        }
        let grain = dice.below(12) as f64 - 6.0;
        Rgb(colour.map(|part| (part + grain).clamp(0.0, 255.0) as u8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_about_the_size_that_was_asked_for_and_decode() {
        let dir = tempfile::tempdir().unwrap();
        for size in [SIZE_MIN, 16 << 10] {
            for path in write(dir.path(), size).unwrap() {
                let len = path.metadata().unwrap().len() as usize;
                assert!((size / 2..=size * 2).contains(&len), "{len} bytes instead of {size}: {path:?}");
                assert!(image::open(&path).unwrap().width() > 8);
            }
        }
        assert_eq!(list(dir.path()).unwrap().len(), 4);
    }

    #[test]
    fn a_directory_without_images_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.txt"), "none").unwrap();
        let error = list(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no JPEG or PNG files"), "{error}");
        let error = list(&dir.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
    }
}
