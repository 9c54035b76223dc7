//! The device of a visitor, by its user agent.

use alloc::vec::Vec;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// An iPhone, an iPod, or an iPad that does not ask for pages of desktops, as it does by default.
    Ios,
    /// A phone or tablet with Android.
    Android,
    /// A device with HarmonyOS, also where it runs Android's apps.
    Harmony,
    /// Windows, macOS, Linux with a desktop, or ChromeOS.
    Desktop,
    /// Whatever else: bots, apps with an agent of their own, televisions.
    Other,
}

impl Device {
    /// All kinds, with their names and their letters in a plan.
    pub const ALL: [(Self, &'static str, u8); 5] = [
        (Self::Ios, "ios", b'i'),
        (Self::Android, "android", b'a'),
        (Self::Harmony, "harmonyos", b'h'),
        (Self::Desktop, "desktop", b'd'),
        (Self::Other, "other", b'o'),
    ];

    /// Finds the device of a user agent. The names of systems decide: they stand in the agents of all browsers, and
    /// change less than those of the browsers.
    pub fn of(user_agent: &[u8]) -> Self {
        let mut found = Self::Other;
        for (place, byte) in user_agent.iter().enumerate() {
            if !matches!(byte, b'A' | b'C' | b'H' | b'M' | b'O' | b'W' | b'X' | b'i') {
                continue;
            }
            let rest = &user_agent[place..];
            let begins = |name: &[u8]| rest.starts_with(name);
            if begins(b"HarmonyOS") || begins(b"OpenHarmony") {
                return Self::Harmony;
            }
            // Its agents name Android and iPhones, too.
            if begins(b"Windows Phone") {
                return Self::Other;
            }
            let here = if begins(b"iPhone") || begins(b"iPad") || begins(b"iPod") {
                Self::Ios
            } else if begins(b"Android") {
                Self::Android
            } else if begins(b"Windows NT")
                || begins(b"Macintosh")
                || begins(b"X11")
                || begins(b"CrOS")
            {
                Self::Desktop
            } else {
                continue;
            };
            if found == Self::Other {
                found = here;
            }
        }
        found
    }

    /// Finds a kind by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, known, _)| *known == name)
            .map(|(device, _, _)| device)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(device, _, _)| *device == self);
        found.map_or("other", |(_, name, _)| name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some kinds of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices(u8);

impl Devices {
    /// Reads the letters of kinds; `None` for another letter, one that stands there twice, or none at all.
    pub fn parse(letters: &[u8]) -> Option<Self> {
        let devices = letters
            .iter()
            .try_fold(Self::default(), |devices, letter| {
                let (device, _, _) = *Device::ALL.iter().find(|(_, _, known)| known == letter)?;
                (!devices.contains(device)).then(|| devices.with(device))
            })?;
        (!letters.is_empty()).then_some(devices)
    }

    /// These and another one.
    #[must_use]
    pub fn with(self, device: Device) -> Self {
        Self(self.0 | device.bit())
    }

    /// Reports whether a kind is one of them.
    pub fn contains(self, device: Device) -> bool {
        self.0 & device.bit() != 0
    }

    /// The kinds.
    pub fn iter(self) -> impl Iterator<Item = Device> {
        let all = Device::ALL.into_iter().map(|(device, _, _)| device);
        all.filter(move |device| self.contains(*device))
    }

    /// Appends the letters.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let all = Device::ALL.into_iter();
        out.extend(
            all.filter(|(device, _, _)| self.contains(*device))
                .map(|(_, _, letter)| letter),
        );
    }
}
