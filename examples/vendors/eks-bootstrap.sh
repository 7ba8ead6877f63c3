#!/bin/bash
# User data of Amazon Linux 2.
set -ex
/etc/eks/bootstrap.sh demo \
  --use-max-pods false \
  --kubelet-extra-args '--cpu-manager-policy=static --reserved-cpus=0,24 --max-pods=50 --node-labels=pinning=yes'
