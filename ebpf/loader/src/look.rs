//! What is in the kernel, for somebody who only looks: nothing is loaded, made or changed.

use aya::maps::{HashMap, Map, MapData};
use seaway_ebpf_abi as abi;
use seaway_proxy_core::desired::DesiredState;

use crate::cgroup::Cgroup;
use crate::maps::failed;
use crate::pins::Pins;
use crate::render::render;
use crate::table::Table;
use crate::{Error, Options, Rendered, bpffs, links};

/// Reads what an earlier process left below the directory of `options`; nothing if there
/// is no such directory. Programs count as attached if they work on these maps, whichever
/// process loaded them.
///
/// # Errors
///
/// [`Error::Locked`] while another process has the directory, which is the one to ask; what
/// the kernel refuses.
pub fn look(options: &Options) -> Result<Rendered, Error> {
    let dir = &options.bpffs_dir;
    if !dir.exists() || !bpffs::is_bpffs(dir)? {
        return Ok(Rendered::default());
    }
    let Some(pins) = Pins::lock(dir)? else {
        return Ok(Rendered::default());
    };
    let both = [abi::SERVICES, abi::SLOTS];
    if !both.iter().all(|name| pins.map(name).exists()) {
        return Ok(Rendered::default());
    }
    let services = HashMap::try_from(open(&pins, abi::SERVICES)?);
    let services: HashMap<_, abi::FrontendKey, abi::Service> =
        services.map_err(failed("use", abi::SERVICES))?;
    let slots = HashMap::try_from(open(&pins, abi::SLOTS)?);
    let slots: HashMap<_, abi::SlotKey, abi::Slot> = slots.map_err(failed("use", abi::SLOTS))?;
    let services = services.iter().collect::<Result<Vec<_>, _>>();
    let slots = slots.iter().collect::<Result<Vec<_>, _>>();
    let table = Table::new(
        services.map_err(failed("read", abi::SERVICES))?,
        slots.map_err(failed("read", abi::SLOTS))?,
    );
    let cgroup = Cgroup::find(options.cgroup_root.as_deref())?;
    Ok(table.rendered(links::working(&pins, &cgroup)?))
}

fn open(pins: &Pins, name: &'static str) -> Result<Map, Error> {
    let data = MapData::from_pin(pins.map(name)).map_err(failed("open", name))?;
    Ok(Map::HashMap(data))
}

/// What the kernel should hold for `desired`, in the terms of [`look`].
pub fn wanted(desired: &DesiredState) -> Rendered {
    render(desired)
}
