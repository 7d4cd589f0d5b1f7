"""Settings: groups of values with their meanings, and the presets that fill them."""

from pwagents.settings.group import (
    PARAMS,
    ROOT,
    Group,
    LabelKind,
    Players,
    S,
    Share,
    Sharding,
    parse_player,
    plain,
    player,
    project_path,
)
from pwagents.settings.load import (
    COMPLETE,
    FLAT,
    INTERACTIVE,
    NOTEBOOKS,
    changes,
    load_settings,
    read_changes,
    rows,
    settings_values,
)
from pwagents.settings.orion import (
    AblationsNotebook,
    Decoding,
    GrpoNotebook,
    OrionPlayers,
    OrionSettings,
    ReinforcedNotebook,
    RewardSettings,
    SensitivityNotebook,
    SftNotebook,
    Success,
    World,
)
from pwagents.settings.puma import PreferenceSettings, PumaNotebook, PumaStudySettings
from pwagents.settings.rl import Credit, GrpoSettings, PpoSettings, RlSettings, Scale, use_vllm
from pwagents.settings.shared import (
    BASE_MODELS,
    INSTALL_SMOLLM2,
    BaseSettings,
    BenchmarkNotebook,
    DataSettings,
    DpoSettings,
    MethodPlayers,
    NotebookSettings,
    PlaySettings,
    ProfilesNotebook,
    SasRecSettings,
    SftSettings,
    ShopSettings,
    TrainingSettings,
    WorldSettings,
    deciding,
)
from pwagents.settings.web import HistorySettings, QuerySettings, WebNotebook
