//! Where the last lines of a file begin.

use std::io::{Read, Result, Seek, SeekFrom};

/// How much is read at once, going backwards.
const BLOCK: u64 = 16 * 1024;

/// The offset at which the last `lines` lines begin; 0 if there are fewer.
///
/// Lines of the file are counted as kubelet counts them: a part of a longer line is
/// a line, and a last one without a line break is not one yet.
pub fn tail_start(file: &mut (impl Read + Seek), lines: u64) -> Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let mut left = end;
    // The break that ends the last wanted line is one more than the lines.
    let mut breaks = 0;
    while left > 0 {
        let size = BLOCK.min(left);
        left -= size;
        let mut block = vec![0; usize::try_from(size).unwrap_or(0)];
        file.seek(SeekFrom::Start(left))?;
        file.read_exact(&mut block)?;
        for (index, _) in block
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            breaks += 1;
            if breaks == lines + 1 {
                return Ok(left + index as u64 + 1);
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[track_caller]
    fn check(text: &str, lines: u64, want: &str) {
        let start = tail_start(&mut Cursor::new(text), lines).unwrap();
        let start = usize::try_from(start).unwrap();
        assert_eq!(&text[start..], want, "last {lines} of {text:?}");
    }

    #[test]
    fn last_lines() {
        check("", 3, "");
        check("a\nb\nc\n", 0, "");
        check("a\nb\nc\n", 1, "c\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\nb\nc", 1, "b\nc");
    }

    #[test]
    fn across_blocks() {
        let line = format!("{}\n", "x".repeat(9_999));
        let text = line.repeat(7);
        check(&text, 5, &line.repeat(5));
    }
}
