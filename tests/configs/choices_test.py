"""Choices of flags equal the keys of the tables that define them."""

from absl.testing import absltest, parameterized

from txl_tf.configs import backbones as backbone_configs
from txl_tf.configs import choices
from txl_tf.conversion import export_checkpoint, import_checkpoint
from txl_tf.export.edge import quantization
from txl_tf.inference import decode_state
from txl_tf.models import backbones, pooling
from txl_tf.training import distribution

_TABLES = {
    "STRATEGIES": distribution.STRATEGIES,
    "STATES": decode_state.STATES,
    "QUANTIZATIONS": quantization.QUANTIZATIONS,
    "IMPORT_FORMATS": import_checkpoint.IMPORTERS,
    "EXPORT_FORMATS": export_checkpoint.EXPORTERS,
    "POOLINGS": pooling.POOLING,
}


class ChoicesTest(parameterized.TestCase):
    @parameterized.named_parameters((name, name) for name in _TABLES)
    def test_names_are_those_of_the_table(self, name):
        self.assertEqual(getattr(choices, name), tuple(_TABLES[name]))

    def test_each_table_is_compared(self):
        names = {name for name in vars(choices) if name.isupper()}
        self.assertEqual(names - {"STATE_DTYPES"}, set(_TABLES))  # those are a table themselves

    def test_each_backbone_has_a_config(self):
        self.assertEqual(list(backbone_configs.BACKBONES), list(backbones.BACKBONES))


if __name__ == "__main__":
    absltest.main()
