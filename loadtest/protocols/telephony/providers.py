"""The wires of telephony providers, each under the provider's name."""

from functools import partial

from loadtest.protocols.registry import register_built_in
from loadtest.protocols.telephony.caller import TelephonyCaller
from loadtest.protocols.telephony.wires import WIRES

for _name, _wire in WIRES.items():
    register_built_in(_name)(partial(TelephonyCaller, _wire))
