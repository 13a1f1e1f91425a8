"""The public names of robustfd.learners."""

from robustfd.learners.losses import LOSSES as LOSSES
from robustfd.learners.losses import Loss as Loss
from robustfd.learners.newton import AdaGrad as AdaGrad
from robustfd.learners.newton import OnlineGradientDescent as OnlineGradientDescent
from robustfd.learners.newton import OnlineNewton as OnlineNewton
