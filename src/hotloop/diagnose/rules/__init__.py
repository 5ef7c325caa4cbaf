"""diagnose/rules"""
