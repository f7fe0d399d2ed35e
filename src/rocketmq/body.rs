//! Decompresses the bodies of messages from other producers.

use std::io::Read;

use rocketmq_model::common::compression::compression_type::CompressionType;
use rocketmq_model::common::sys_flag::message_sys_flag::MessageSysFlag;

/// Names the compression of a body, if there is one.
pub(super) fn compression(flags: i32) -> Option<&'static str> {
    MessageSysFlag::check(flags, MessageSysFlag::COMPRESSED_FLAG).then(|| {
        match MessageSysFlag::try_get_compression_type(flags) {
            Ok(CompressionType::LZ4) => "lz4",
            Ok(CompressionType::Zstd) => "zstd",
            _ => "zlib",
        }
    })
}

/// Returns the body as it was sent: producers compress bodies longer than 4 KiB (`compressMsgBodyOverHowmuch`), by zlib
/// by default. Or says why it cannot be had, as for one that is longer than `most` bytes.
pub(super) fn expanded(body: &[u8], flags: i32, most: usize) -> Result<Vec<u8>, String> {
    let expanded = match compression(flags) {
        None if body.len() <= most => return Ok(body.to_vec()),
        None => return Err(too_long(most)),
        Some("lz4") => up_to(most, lz4_flex::frame::FrameDecoder::new(body)),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .map_err(|cause| cause.to_string())
            .and_then(|decoder| up_to(most, decoder)),
        // Producers before 5.0 do not name the type.
        Some(_) => up_to(most, flate2::read::ZlibDecoder::new(body)),
    };
    expanded.map_err(|cause| format!("the compressed body cannot be read: {cause}"))
}

fn up_to(most: usize, decoder: impl Read) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    // A few bytes may expand to gigabytes.
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .take(limit)
        .read_to_end(&mut body)
        .map_err(|cause| cause.to_string())?;
    match body.len() <= most {
        true => Ok(body),
        false => Err(too_long(most)),
    }
}

fn too_long(most: usize) -> String {
    format!("it is longer than {most} bytes")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &[u8] = &[b'x'; 10_000];

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_producers_compress_is_as_it_was_sent() {
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(TEXT).unwrap();
        let compressed = MessageSysFlag::COMPRESSED_FLAG;
        for (body, flags) in [
            (TEXT.to_vec(), 0),
            (zlib(TEXT), compressed),
            (zlib(TEXT), compressed | MessageSysFlag::COMPRESSION_ZLIB_TYPE),
            (
                lz4.finish().unwrap(),
                compressed | MessageSysFlag::COMPRESSION_LZ4_TYPE,
            ),
            (
                zstd::encode_all(TEXT, 1).unwrap(),
                compressed | MessageSysFlag::COMPRESSION_ZSTD_TYPE,
            ),
        ] {
            assert_eq!(expanded(&body, flags, TEXT.len()).unwrap(), TEXT, "{flags}");
            let refused = expanded(&body, flags, TEXT.len() - 1).unwrap_err();
            assert!(refused.contains("longer than 9999 bytes"), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_and_what_expands_without_end_is_cut_off() {
        let garbled = b"not compressed at all";
        for kind in [
            0,
            MessageSysFlag::COMPRESSION_LZ4_TYPE,
            MessageSysFlag::COMPRESSION_ZSTD_TYPE,
        ] {
            let refused = expanded(garbled, MessageSysFlag::COMPRESSED_FLAG | kind, 100).unwrap_err();
            assert!(
                refused.starts_with("the compressed body cannot be read"),
                "{refused}"
            );
        }
        let bomb = zlib(&vec![0; 64 << 20]);
        let refused = expanded(&bomb, MessageSysFlag::COMPRESSED_FLAG, 1 << 20).unwrap_err();
        assert!(refused.contains("longer than 1048576 bytes"), "{refused}");
    }
}
