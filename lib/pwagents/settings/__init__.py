"""Settings: groups of values with their meanings, and the presets that fill them."""

from pwagents.settings.group import (
    PARAMS,
    ROOT,
    Group,
    LabelKind,
    Players,
    S,
    Sharding,
    Share,
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
    REVIEW_TEMPERATURE,
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
from pwagents.settings.shared import (
    BenchmarkNotebook,
    DataSettings,
    MethodPlayers,
    NotebookSettings,
    PlaySettings,
    ProfilesNotebook,
    SasRecSettings,
    ShopSettings,
    WorldSettings,
)
from pwagents.settings.training import (
    BASE_MODELS,
    INSTALL_SMOLLM2,
    BaseSettings,
    Credit,
    DpoSettings,
    GrpoSettings,
    PpoSettings,
    RlSettings,
    Scale,
    SftSettings,
    TrainingSettings,
    deciding,
    use_vllm,
)
from pwagents.settings.web import HistorySettings, QuerySettings, WebNotebook
