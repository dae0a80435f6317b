//! The data plane as the sync loop sees it.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, ready};
use std::path::PathBuf;

use aya::EbpfLoader;
use aya::maps::MapError;
use aya::programs::ProgramError;
use seaway_ebpf_abi::PROGRAMS;
use seaway_proxy_core::Skipped;
use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::DesiredState;
use tracing::level_filters::LevelFilter;
use tracing::{info, warn};

use crate::cgroup::Cgroup;
use crate::logs::EbpfLogs;
use crate::maps::{Maps, describe, set_of};
use crate::pins::{Pins, map_names};
use crate::table::{Op, Table};
use crate::{Error, Rendered, links, logs, object, render};

/// Where the programs go and how much they say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the pins on a bpffs, `/sys/fs/bpf/seaway/v1` by default. Made where
    /// it is missing; the bpffs is mounted only when it is the one at `/sys/fs/bpf`.
    pub bpffs_dir: PathBuf,
    /// The cgroup2 directory whose sockets are served, those in cgroups below it
    /// included. None means the root of the hierarchy.
    pub cgroup_root: Option<PathBuf>,
    /// What the programs log. Fixed when they are loaded.
    pub log_level: LevelFilter,
}

/// What the verifier said of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// Name of the program.
    pub name: &'static str,
    /// The kernel's number of it.
    pub id: u32,
    /// Instructions that the verifier walked through; its limit is a million. Kernels
    /// before 5.16 do not tell.
    pub verified_instructions: Option<u32>,
}

/// Services at the socket level, by eBPF programs on a cgroup.
pub struct EbpfBackend {
    /// None after everything was removed.
    open: Option<Open>,
    logs: Option<EbpfLogs>,
}

struct Open {
    pins: Pins,
    cgroup: Cgroup,
    object: aya::Ebpf,
    maps: Maps,
    /// What the maps hold; none when that is not known for sure.
    table: Option<Table>,
    /// Programs known to be attached.
    attached: BTreeSet<&'static str>,
    /// Whether other versions' pins may be beside ours.
    strangers: bool,
}

impl fmt::Debug for EbpfBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("EbpfBackend");
        if let Some(open) = &self.open {
            f.field("pins", &open.pins).field("cgroup", &open.cgroup);
        }
        f.finish_non_exhaustive()
    }
}

impl EbpfBackend {
    /// Loads the programs and adopts what an earlier process left.
    ///
    /// When pinned links already run on the pinned maps, the new programs are swapped
    /// in at once. Otherwise nothing is attached before the first
    /// [`apply`](Backend::apply) has filled the maps.
    ///
    /// # Errors
    ///
    /// What the system lacks or refuses, by name. Programs that were attached before
    /// stay attached.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let elf = object::programs()?;
        let cgroup = Cgroup::find(options.cgroup_root.as_deref())?;
        let pins = Pins::open(&options.bpffs_dir)?;
        pins.discard_foreign_maps()?;
        let mut object = load(elf, &pins, options.log_level)?;
        let logs = match options.log_level {
            LevelFilter::OFF => None,
            _ => Some(EbpfLogs::take(&mut object)?),
        };
        let maps = Maps::take(&mut object)?;
        let filled = links::any_uses(&pins, pins.config_map_ids()?)?;
        let mut open = Open {
            pins,
            cgroup,
            object,
            maps,
            table: None,
            attached: BTreeSet::new(),
            strangers: true,
        };
        if filled {
            open.attach()?;
        }
        Ok(Self {
            open: Some(open),
            logs,
        })
    }

    /// The programs' log lines, once, unless the level is off; somebody must run it.
    pub fn take_logs(&mut self) -> Option<EbpfLogs> {
        self.logs.take()
    }

    /// Events that the programs counted since the maps were made, over all CPUs.
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.open.as_ref().ok_or(Error::Removed)?.maps.counters()
    }

    /// What the verifier said of each program.
    pub fn program_stats(&mut self) -> Result<Vec<ProgramStats>, Error> {
        let open = self.open.as_mut().ok_or(Error::Removed)?;
        let stats = PROGRAMS.iter().map(|name| {
            let info = links::program(&mut open.object, name)?
                .info()
                .map_err(|source| refused(name, source))?;
            let verified_instructions = info.verified_instruction_count();
            Ok(ProgramStats {
                name,
                id: info.id(),
                verified_instructions,
            })
        });
        stats.collect()
    }

    fn open_mut(&mut self) -> Result<&mut Open, Error> {
        self.open.as_mut().ok_or(Error::Removed)
    }
}

fn refused(name: &'static str, source: ProgramError) -> Error {
    Error::Program {
        name,
        source: Box::new(source),
    }
}

fn load(elf: &[u8], pins: &Pins, log_level: LevelFilter) -> Result<aya::Ebpf, Error> {
    let level = logs::level(log_level);
    let mut loader = EbpfLoader::new();
    loader.override_global(logs::LEVEL, &level, true);
    for name in map_names() {
        loader.map_pin_path(name, pins.map(name));
    }
    let mut object = loader.load(elf).map_err(|source| Error::Object {
        source: Box::new(source),
    })?;
    // All before any is attached: either all of this version run or none does.
    for name in PROGRAMS {
        let program = links::program(&mut object, name)?;
        program.load().map_err(|source| refused(name, source))?;
    }
    Ok(object)
}

impl Open {
    fn attach(&mut self) -> Result<(), Error> {
        if self.attached.len() == PROGRAMS.len() {
            return Ok(());
        }
        for name in PROGRAMS {
            let program = links::program(&mut self.object, name)?;
            links::attach(&self.pins, &self.cgroup, name, program)?;
            self.attached.insert(name);
        }
        info!(cgroup = %self.cgroup.path.display(), "Attached eBPF programs");
        self.strangers = true;
        self.discard_strangers();
        Ok(())
    }

    /// Not before ours are attached, or sockets would find a gap.
    fn discard_strangers(&mut self) {
        if !self.strangers || self.attached.len() < PROGRAMS.len() {
            return;
        }
        let discarded = self.pins.discard_strangers();
        self.strangers = discarded.is_err();
        if let Err(error) = &discarded {
            let error: &(dyn StdError + 'static) = error;
            warn!(
                error,
                "Cannot remove what another version has pinned, trying again"
            );
        }
    }

    fn read_back(&mut self) -> Result<Rendered, Error> {
        self.table = None;
        let table = self.maps.dump()?;
        self.attached = links::attached(&self.pins, &self.cgroup, &mut self.object)?;
        // Again, where that has failed.
        self.discard_strangers();
        let rendered = table.rendered(self.attached.clone());
        self.table = Some(table);
        Ok(rendered)
    }

    fn apply(&mut self, want: &Rendered) -> Result<(), Error> {
        let mut table = match self.table.take() {
            Some(table) => table,
            None => self.maps.dump()?,
        };
        self.execute(&mut table, want)?;
        self.table = Some(table);
        self.attach()
    }

    /// One service that cannot be written does not stop the others; it stays on its
    /// old set, so nothing is deleted then. An error leaves the table to be read anew.
    fn execute(&mut self, table: &mut Table, want: &Rendered) -> Result<(), Error> {
        let ops = table.plan(want);
        let total = ops.len();
        let mut failures = Failures::default();
        for op in ops {
            if failures.blocks(op) {
                continue;
            }
            match self.maps.execute(op) {
                Ok(()) => table.done(op),
                Err(error) => failures.add(op, error),
            }
        }
        failures.into_result(total)
    }
}

#[derive(Default)]
struct Failures {
    sets: BTreeSet<u32>,
    count: usize,
    first: Option<(String, MapError)>,
}

impl Failures {
    fn add(&mut self, op: Op, error: MapError) {
        if let Op::PutSlot(key, _) = op {
            self.sets.insert(key.set);
        }
        self.count += 1;
        self.first.get_or_insert_with(|| (describe(op), error));
    }

    fn blocks(&self, op: Op) -> bool {
        match op {
            Op::DeleteSlot(_) => self.count > 0,
            _ => set_of(op).is_some_and(|set| self.sets.contains(&set)),
        }
    }

    fn into_result(self, total: usize) -> Result<(), Error> {
        let failed = self.count;
        match self.first {
            None => Ok(()),
            Some((first, source)) => Err(Error::Partial {
                failed,
                total,
                first,
                source: Box::new(source),
            }),
        }
    }
}

// The work is a few system calls per changed entry, about a microsecond each; nothing
// in it waits, so the futures are ready when they are made.
impl Backend for EbpfBackend {
    type Rendered = Rendered;

    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn render(&self, desired: &DesiredState) -> Rendered {
        render::render(desired)
    }

    fn unsupported(&self, desired: &DesiredState) -> Vec<Skipped> {
        let left_out = render::unsupported(desired).into_iter();
        left_out.map(Skipped::from).collect()
    }

    fn read_back(&mut self) -> impl Future<Output = Result<Rendered, BackendError>> + Send {
        ready(
            self.open_mut()
                .and_then(Open::read_back)
                .map_err(BackendError::from),
        )
    }

    /// The way is computed from the maps' own content, which the lock keeps ours.
    fn apply(
        &mut self,
        _have: &Rendered,
        want: &Rendered,
    ) -> impl Future<Output = Result<(), BackendError>> + Send {
        ready(
            self.open_mut()
                .and_then(|open| open.apply(want))
                .map_err(BackendError::from),
        )
    }

    fn remove_all(&mut self) -> impl Future<Output = Result<(), BackendError>> + Send {
        let removed = match self.open.take() {
            Some(open) => open.pins.remove(),
            None => Ok(()),
        };
        ready(removed.map_err(BackendError::from))
    }
}
