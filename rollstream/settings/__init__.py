"""Settings: flags, then environment variables, then a file, then defaults."""

from rollstream.settings.load import Loaded, SettingsError, load
from rollstream.settings.model import DeliveryMode, Settings

__all__ = ["DeliveryMode", "Loaded", "Settings", "SettingsError", "load"]
