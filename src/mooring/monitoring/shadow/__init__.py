"""Beside a kubelet, only reading: does the engine decide as the kubelet did?"""
