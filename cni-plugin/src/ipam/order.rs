//! Which free address is next.
//!
//! One file per family, so that an `ADD` reads little and writes one address in place:
//!
//! ```text
//! .order-v4, .order-v6     FRESH RELEASED RELEASED ...
//! ```
//!
//! Each is an address of four or sixteen bytes, and none where it is unspecified. FRESH is the
//! last one that was given out for the first time. The others were given back, the longest
//! ago first; one that is there twice was given back at its later place.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Pool;
use super::record::replace;

/// A longer memory would cost more per `ADD` than it saves confusion. Up to twice as many
/// bytes lie there, so that not every address that is given back moves all others.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// What is to be remembered of addresses that are being given out. Only a hint: the records
/// say what is taken.
#[derive(Debug, Default)]
pub(super) struct Order {
    notes: Vec<(Memory, Vec<Note>)>,
}

/// An address for a place in the file; `None` where it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    place: usize,
    address: Option<IpAddr>,
}

impl Order {
    /// The next address that is not taken; those of `spared` only when there
    /// is no other.
    pub(super) fn next(
        &mut self,
        dir: &Path,
        pool: &Pool,
        taken: &BTreeSet<IpAddr>,
        spared: &BTreeSet<IpAddr>,
    ) -> Option<IpAddr> {
        let memory = Memory::read(dir, pool.is_ipv4());
        let free = |address: &IpAddr| !taken.contains(address) && !spared.contains(address);
        let (address, notes) = memory.next(pool, free);
        self.notes.push((memory, notes));
        address
    }

    /// Remembers. Where that fails, only the order suffers, and an address is given all the
    /// same.
    pub(super) fn write(&self) {
        for (memory, notes) in &self.notes {
            for note in notes {
                report(memory.write(*note));
            }
        }
    }
}

/// Remembers what is given back. Where that fails, on a full file system above all, only the
/// order suffers.
pub(super) fn give_back(dir: &Path, addresses: impl IntoIterator<Item = IpAddr>) {
    for address in addresses {
        report(append(dir, address));
    }
}

fn append(dir: &Path, address: IpAddr) -> io::Result<()> {
    let v4 = address.is_ipv4();
    let file = open(dir, v4)?;
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // Behind the place of FRESH, and over what is half an address.
    let place = (size / width(v4)).max(1);
    write_at(&file, place, v4, Some(address))?;
    if size < 2 * REMEMBERED_BYTES {
        return Ok(());
    }
    let memory = Memory::read(dir, v4);
    let shorter = memory.shortened();
    // What could not be read is not replaced by nothing.
    memory.file?;
    replace(dir, name(v4), &shorter).map_err(io::Error::other)
}

/// What one of the files says.
#[derive(Debug)]
struct Memory {
    v4: bool,
    bytes: Vec<u8>,
    file: io::Result<File>,
}

impl Memory {
    /// A missing or damaged file is an empty memory. One that cannot be read is, too, and is
    /// not written to.
    fn read(dir: &Path, v4: bool) -> Self {
        let mut bytes = Vec::new();
        let read = open(dir, v4).and_then(|mut file| file.read_to_end(&mut bytes).map(|_| file));
        if read.is_err() {
            bytes.clear();
        }
        Self {
            v4,
            bytes,
            file: read,
        }
    }

    fn write(&self, note: Note) -> io::Result<()> {
        match &self.file {
            Ok(file) => write_at(file, note.place, self.v4, note.address),
            Err(error) => Err(error.kind().into()),
        }
    }

    /// The next address, and what is to be remembered when it is given out.
    fn next(&self, pool: &Pool, free: impl Fn(&IpAddr) -> bool) -> (Option<IpAddr>, Vec<Note>) {
        let fresh = self.at(0);
        let note = |place, address| Note { place, address };
        let never_used = |address: &IpAddr| free(address) && !self.has(*address);
        if let Some(address) = pool.after(fresh).find(never_used) {
            return (Some(address), vec![note(0, Some(address))]);
        }
        // So that the next one need not look at all of them again.
        let mut notes = Vec::new();
        if fresh != pool.last() {
            notes.push(note(0, pool.last()));
        }
        let released = self.released().find(|(place, address)| {
            pool.contains(*address)
                && free(address)
                && !self.released().any(|(p, a)| p > *place && a == *address)
        });
        if let Some((place, address)) = released {
            notes.push(note(place, None));
            return (Some(address), notes);
        }
        // Whatever the memory has lost.
        (pool.after(None).find(free), notes)
    }

    fn at(&self, place: usize) -> Option<IpAddr> {
        let bytes = self.bytes.chunks_exact(width(self.v4)).nth(place)?;
        decode(bytes)
    }

    /// (place, address), the longest ago first.
    fn released(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        let all = self.bytes.chunks_exact(width(self.v4)).map(decode);
        let places = all.enumerate().skip(1);
        places.filter_map(|(place, address)| Some((place, address?)))
    }

    /// Whether it was given back. As bytes, since there may be thousands.
    fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.released_as().contains(&address.octets()),
            IpAddr::V6(address) => self.released_as().contains(&address.octets()),
        }
    }

    fn released_as<const WIDTH: usize>(&self) -> &[[u8; WIDTH]] {
        let (all, _half) = self.bytes.as_chunks();
        all.get(1..).unwrap_or_default()
    }

    /// The same without places that are empty or repeated, and without the oldest.
    fn shortened(&self) -> Vec<u8> {
        let mut seen = BTreeSet::new();
        let all: Vec<IpAddr> = self.released().map(|(_, address)| address).collect();
        let latest_first = all.iter().rev().filter(|address| seen.insert(**address));
        let mut kept: Vec<&IpAddr> = latest_first
            .take(REMEMBERED_BYTES / width(self.v4))
            .collect();
        kept.reverse();
        let mut bytes = encode(self.v4, self.at(0));
        bytes.extend(kept.into_iter().flat_map(|ip| encode(self.v4, Some(*ip))));
        bytes
    }
}

fn open(dir: &Path, v4: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(dir.join(name(v4)))
}

fn name(v4: bool) -> &'static str {
    if v4 { ".order-v4" } else { ".order-v6" }
}

fn width(v4: bool) -> usize {
    if v4 { 4 } else { 16 }
}

fn encode(v4: bool, address: Option<IpAddr>) -> Vec<u8> {
    match address {
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets().to_vec(),
        None => vec![0; width(v4)],
    }
}

fn decode(bytes: &[u8]) -> Option<IpAddr> {
    let address = match (bytes.first_chunk::<16>(), bytes.first_chunk::<4>()) {
        (Some(v6), _) => IpAddr::from(Ipv6Addr::from(*v6)),
        (None, Some(v4)) => IpAddr::from(Ipv4Addr::from(*v4)),
        (None, None) => return None,
    };
    (!address.is_unspecified()).then_some(address)
}

fn write_at(file: &File, place: usize, v4: bool, address: Option<IpAddr>) -> io::Result<()> {
    let offset = u64::try_from(place * width(v4)).map_err(io::Error::other)?;
    file.write_all_at(&encode(v4, address), offset)
}

fn report(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("Not remembered: {error}");
    }
}

#[cfg(test)]
mod tests;
