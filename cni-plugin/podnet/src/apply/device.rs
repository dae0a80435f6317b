//! The overlay's device.

use seaway_netlink::{Family, IfIndex, Link, NetlinkError, Socket, Vxlan, VxlanDevice};

use super::{Changes, PodNetworkError};
use crate::sysctl;
use crate::{Desired, Overlay, Uplink};

/// What IPv6 needs of every link (RFC 8200, section 5).
const MIN_MTU_V6: u32 = 1280;

/// Makes the device be there, up, as `overlay` wants it; returns its number.
///
/// Its MTU is what fits through the uplink, or what pods get, if that is less.
///
/// # Errors
/// A link of the same name that is not a VXLAN device stays, and is named.
pub(super) fn ensure(
    socket: &mut Socket,
    want: &Desired,
    overlay: &Overlay,
    uplink: &Uplink,
    changes: &mut Changes,
) -> Result<IfIndex, PodNetworkError> {
    let failed = |source| PodNetworkError::Device {
        name: overlay.device.clone(),
        source,
    };
    let mtu = fitting(want, overlay, uplink)?;
    let vxlan = Vxlan::unicast(overlay.vni, overlay.port, overlay.local, uplink.link.index);
    let device = VxlanDevice {
        name: overlay.device.clone(),
        mac: overlay.mac,
        mtu,
        vxlan,
    };
    let link = match find(socket, &overlay.device)? {
        Some((link, have)) if have == vxlan && link.mac == Some(overlay.mac) => link,
        stale => {
            if let Some((link, _)) = stale {
                socket.link_delete(link.index).map_err(failed)?;
            }
            changes.node = true;
            socket.link_add_vxlan(&device).map_err(failed)?;
            socket.link_by_name(&device.name).map_err(failed)?
        }
    };
    if link.mtu != mtu {
        socket.link_set_mtu(link.index, mtu).map_err(failed)?;
        changes.node = true;
    }
    // Before the link is up: a router's word about other ways is not for this device.
    changes.node |= sysctl::overlay_device(&link.name, want)?;
    if !link.up {
        socket.link_set_up(link.index).map_err(failed)?;
        changes.node = true;
    }
    Ok(link.index)
}

/// The device's MTU. Below what IPv6 needs the kernel takes the family from a link, and its
/// switches with it.
fn fitting(want: &Desired, overlay: &Overlay, uplink: &Uplink) -> Result<u32, PodNetworkError> {
    let room = uplink.mtu.saturating_sub(overlay.overhead());
    let mtu = want.mtu.map_or(room, |mtu| mtu.min(room));
    if mtu >= MIN_MTU_V6 || !want.has_pods_of(Family::V6) {
        return Ok(mtu);
    }
    Err(if room < MIN_MTU_V6 {
        PodNetworkError::UplinkTooSmall {
            uplink: uplink.link.name.clone(),
            mtu: uplink.mtu,
            minimum: MIN_MTU_V6 + overlay.overhead(),
        }
    } else {
        PodNetworkError::PodMtuTooSmall { mtu }
    })
}

/// Removes the device. One of the same name that is not a VXLAN device is somebody else's.
pub(super) fn remove(
    socket: &mut Socket,
    name: &str,
    changes: &mut Changes,
) -> Result<(), PodNetworkError> {
    match find(socket, name) {
        Ok(Some((link, _))) => {
            socket
                .link_delete(link.index)
                .map_err(PodNetworkError::netlink)?;
            changes.node = true;
            Ok(())
        }
        Ok(None) | Err(PodNetworkError::ForeignDevice { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn find(socket: &mut Socket, name: &str) -> Result<Option<(Link, Vxlan)>, PodNetworkError> {
    match socket.vxlan_by_name(name) {
        Ok((link, Some(vxlan))) => Ok(Some((link, vxlan))),
        Ok((link, None)) => Err(PodNetworkError::ForeignDevice {
            name: link.name,
            kind: link.kind.unwrap_or_else(|| "hardware".to_owned()),
        }),
        Err(error) if NetlinkError::is_not_found(&error) => Ok(None),
        Err(source) => Err(PodNetworkError::netlink(source)),
    }
}
